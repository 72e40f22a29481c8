package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/models/signature"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/identity"
)

// signed is the output of fmp sign and fmp verify. Name is the one in the signature, which a file
// that was renamed since does not have.
type signed struct {
	Model     string   `json:"model"`
	Signature string   `json:"signature"`         // file
	Name      string   `json:"name"`              // of the model when it was signed
	Files     int      `json:"files"`             // that the signature covers
	Digest    string   `json:"digest"`            // sha256 of their digests
	Ignored   []string `json:"ignored,omitempty"` // paths in the folder that it leaves out
}

// print names the model, its signature and the files that it covers.
func (s *signed) print(cmd *cobra.Command, verb string) error {
	ignored := ""
	if len(s.Ignored) > 0 {
		ignored = "\nleft out:  " + strings.Join(s.Ignored, ", ")
	}
	return say(cmd, s, "%-10s %s (signed as %q)\nsignature: %s\nfiles:     %d, sha256 %s%s\n",
		verb+":", s.Model, s.Name, s.Signature, s.Files, s.Digest, ignored)
}

// signatureFile is where the signature of a model is by default: beside it.
// A folder's path is cleaned, as "MODEL/.sig" would lie in the folder that is signed.
func signatureFile(model string) string { return filepath.Clean(model) + ".sig" }

// newSignCommand declares fmp sign. A signature is verified with the public half of its key before
// it is written. An ECDSA signature on P-256 is drawn at random, so that two signatures of one
// model differ.
// The order is: flags, the signature's place, key, paths left out, files, verification, writing.
func newSignCommand() *cobra.Command {
	var key, newKey, out string
	var ignored []string
	cmd := &cobra.Command{
		Use:   "sign MODEL",
		Short: "Sign a model, a file or a folder, so that others can verify who made it",
		Long: `Write a signature of a model in the format of OpenSSF Model Signing (OMS v1.0): a Sigstore bundle
with the SHA-256 of every file, signed with an ECDSA key on P-256. Any verifier of the format reads
it (model_signing verify key).

MODEL is one file (a client graph, a classifier) or a folder. Of a model's file the signature covers
the files that hold its data as well, of a folder every file but Git's and those of --ignore; links
are refused. fmp verify, fmp-edge compress --signed-by and fmp-edge predict --signed-by verify it.
Where the signature of a round's client graph is beside it, fmp serve hands it to the clients
(fmp-edge join --signed-by).

--new-key FILE makes a key: the private half in FILE, which its owner alone can read, the public one
in FILE.pub. Give the public half to those who verify, over a channel that the server does not
control.`,
		Example: `  fmp sign --new-key signer.pem
  fmp sign client.onnx --key signer.pem
  fmp sign models/ --key signer.pem --ignore notes --output models.sig`,
		Args: rangeArgs(0, 1, "MODEL"),
	}
	cmd.Flags().StringVar(&key, "key", "", "`FILE` of the private key (PEM, P-256)")
	cmd.Flags().StringVar(&newKey, "new-key", "",
		"make a key: `FILE` for the private half, FILE.pub for the public one")
	outFlag(cmd, &out, "output", "", "`FILE` of the signature (default MODEL.sig)")
	outputs.Files(cmd.Flags(), "new-key")
	cmd.Flags().StringSliceVar(&ignored, "ignore", nil,
		"`PATH` in the folder that the signature leaves out; may be given again")
	jsonFlag(cmd, "print what was signed as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case newKey != "" && (key != "" || len(args) > 0):
			return usageErrorf("sign: --new-key makes a key and signs nothing; give it alone")
		case newKey != "":
			return usageError(makeSigner(cmd.OutOrStdout(), newKey))
		case key == "" || len(args) == 0:
			return usageErrorf("sign: give MODEL and --key FILE; fmp sign " +
				"--new-key FILE makes a key")
		}
		if out == "" {
			// The default name comes from no flag, and is guarded as one that does.
			out = signatureFile(args[0])
			release, err := outputs.Claim(out)
			if err != nil {
				return usageError(err)
			}
			defer release()
		}
		k, err := signature.LoadPrivate(key)
		if err == nil {
			err = identity.CheckSecret(key)
		}
		if err != nil {
			return usageError(err)
		}
		leave, err := ignoredPaths(args[0], out, ignored)
		if err != nil {
			return usageError(err)
		}
		data, err := signature.Sign(k, args[0], leave)
		if err != nil {
			return usageError(err)
		}
		// The bundle is read back before it takes the place of an older one.
		m, err := signature.Verify(&k.PublicKey, data)
		if err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(out, data); err != nil {
			return err
		}
		s := signed{args[0], out, m.Name, m.Files(), m.Digest, m.Ignored}
		return s.print(cmd, "signed")
	}
	return cmd
}

// ignoredPaths are the files that the signature of a folder leaves out: Git's files, those given,
// and the signature itself. They are relative to the folder, with slashes. A file has none. The
// signature itself is left out as it would otherwise cover its own bytes. An --ignore of a path
// that is not there is no error.
func ignoredPaths(model, out string, given []string) ([]string, error) {
	st, err := os.Stat(model)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		if len(given) > 0 {
			return nil, fmt.Errorf("sign: --ignore is for folders; %s is a file", model)
		}
		return nil, nil
	}
	ignored := append([]string{}, signature.GitPaths...)
	for _, p := range given {
		ignored = append(ignored, filepath.ToSlash(filepath.Clean(p)))
	}
	folder, err := filepath.Abs(model)
	if err != nil {
		return nil, err
	}
	file, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	// A signature beside the folder, or on another volume of Windows, is not within it.
	if p, err := filepath.Rel(folder, file); err == nil && filepath.IsLocal(p) {
		ignored = append(ignored, filepath.ToSlash(p))
	}
	return ignored, nil
}

// makeSigner writes the two files of a new key; a private key that is there is not overwritten. The
// private half is written first. Where the public half cannot be written the private one stays: it
// is a key all the same. Its output is text in all cases, as it names two files.
func makeSigner(w io.Writer, path string) error {
	private, public, err := signature.NewKey()
	if err != nil {
		return err
	}
	if err := identity.SaveSecret(path, private); err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	if err := atomicfile.WriteBytes(path+".pub", public); err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	_, err = fmt.Fprintf(w, "private:   %s\npublic:    %s.pub\n", path, path)
	return err
}

// verifiedBundle reads the signature of a model in a file, after verifying that it is of the key
// and of this model. A signature that does not hold is no usage error (exit code 1). The bundle is
// read within signature.MaxBundle. A key or a bundle that cannot be read is a usage error. The
// bundle's bytes are returned as they are in the file, for others to copy.
// The model is compared once the bundle's own signature holds.
func verifiedBundle(key, bundle, model string) (*signature.Manifest, []byte, error) {
	k, err := signature.LoadPublic(key)
	if err != nil {
		return nil, nil, usageError(err)
	}
	data, err := regularfile.ReadFile(bundle, signature.MaxBundle)
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("signature (fmp sign makes one): %w", err))
	}
	m, err := signature.Verify(k, data)
	if err == nil {
		if err = m.Check(model); err != nil && !errors.Is(err, signature.ErrInvalid) {
			return nil, nil, usageError(err)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", bundle, err)
	}
	return m, data, nil
}

// newVerifyCommand declares fmp verify. A file that a notice names fails though its signature
// holds. The signature is verified before the notice is read.
func newVerifyCommand() *cobra.Command {
	var key, bundle string
	var notice noticeFlags
	cmd := &cobra.Command{
		Use:   "verify MODEL",
		Short: "Verify who signed a model, and that nothing of it was changed",
		Long: `Verify the signature of a model, a file or a folder, in the format of OpenSSF Model Signing (OMS
v1.0), made with an ECDSA key on P-256 by fmp sign or by another program (model_signing sign key).
Of a folder, and of a model with the files that hold its data, every file must be there, unchanged,
and no other but those that the signature leaves out.

A signature says who made a model. It does not say when, nor that it is the newest, nor what it is
good for. Signatures with certificates or Sigstore identities are refused. The exit code is 0 where
the signature holds and 1 where it does not.

A file that the notice of its round names is superseded: it holds an upload that its client
withdrew. It is not verified (exit code 1).`,
		Example: `  fmp verify client.onnx --key signer.pem.pub
  fmp verify models/ --key signer.pem.pub --signature models.sig --json
  fmp verify classifier.onnx --key signer.pem.pub --notice round.notice \
    --server-key "$(cat server.pub)"`,
		Args: rangeArgs(1, 1, "MODEL"),
	}
	cmd.Flags().StringVar(&key, "key", "", "`FILE` of the signer's public key (PEM, P-256)")
	cmd.Flags().StringVar(&bundle, "signature", "", "`FILE` of the signature (default MODEL.sig)")
	notice.bind(cmd)
	jsonFlag(cmd, "print what was verified as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return usageErrorf("verify: --key is missing: the signer's public key")
		}
		bundle = cmp.Or(bundle, signatureFile(args[0]))
		m, _, err := verifiedBundle(key, bundle, args[0])
		if err != nil {
			return err
		}
		if err := notice.heed(args[0]); err != nil {
			return err
		}
		s := signed{args[0], bundle, m.Name, m.Files(), m.Digest, m.Ignored}
		return s.print(cmd, "verified")
	}
	return cmd
}
