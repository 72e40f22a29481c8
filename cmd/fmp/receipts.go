package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
)

// newReceiptsCommand groups the commands on receipts. verify needs no key of a client, and fetch
// does.
func newReceiptsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "receipts",
		Short: "Verify a receipt of a round offline, or fetch it again",
		Long: `A receipt certifies that a server holds an upload, and since when. The server signs it once the
upload is on its disk. verify needs no network: it checks the signature with the server's public
key, and the upload's digest. fetch asks the server for the receipt again, with the client's key.`,
	}, newReceiptsVerifyCommand(), newReceiptsFetchCommand())
}

// verified is the output of fmp receipts verify. JSON has the receipt's own fields and these in one
// object, as wire.Receipt is embedded.
type verified struct {
	wire.Receipt
	// Bytes is the size of the upload; nil where nothing proves it: the signature does not cover
	// it.
	Bytes *int `json:"bytes,omitempty"`
	// UploadFile is the upload that the receipt is of, if it was given.
	UploadFile string `json:"upload_file,omitempty"`
}

// newReceiptsVerifyCommand declares fmp receipts verify. The file itself says which of three it is:
// the record of a withdrawal, the receipt of one, or that of an upload. A record is a pool's,
// signed by a key of a roster; both receipts are a server's. Wrong arguments are usage errors, and
// faults of signature or content have exit code 1.
func newReceiptsVerifyCommand() *cobra.Command {
	var server, roster, upload string
	cmd := &cobra.Command{
		Use:   "verify RECEIPT --server-key KEY | RECORD --signed-by ROSTER",
		Short: "Verify a receipt's signature, and that it is of an upload",
		Long: `Check that the server with the given public key signed the receipt, of an upload or of a withdrawal,
and with --upload that it is the receipt of that file: its sha256 and size, round, client and client
graph. Nothing is sent, and nothing is printed that the signature does not cover: the size of an
upload is, once it is compared with the file. A receipt with other fields than the server writes
does not hold. Exit code 0 if the receipt holds, 1 if it does not, 2 for wrong arguments.

With --signed-by check the record of a withdrawal (fmp pool --record): one of the roster's keys
signed it, and with --upload it names that file.

The key is the base64 text that the server's description has as server_key (/v1/rounds); get it from
the server's operators, not from the receipt, which anybody could sign with a key of their own.`,
		Example: `  fmp receipts verify shop-17.7.receipt.json --server-key MCowBQYDK2VwAyEA...= \
    --upload shop-17.7.upload
  fmp receipts verify shop-17.7.withdrawal.json --server-key "$(cat server.pub)"
  fmp receipts verify receipt.json --server-key "$(cat server.pub)" --json
  fmp receipts verify ward-3.json --signed-by servers.txt --upload ward-3.upload`,
		Args: rangeArgs(1, 1, "RECEIPT"),
	}
	cmd.Flags().StringVar(&roster, "signed-by", "",
		"`ROSTER` (fmp keys) of whose keys one must have signed the record of a withdrawal")
	cmd.Flags().StringVar(&server, "server-key", "", "public `KEY` of the server (base64)")
	cmd.Flags().StringVar(&upload, "upload", "", "`FILE` that the receipt should be of")
	jsonFlag(cmd, "print the receipt as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (server == "") == (roster == "") {
			return usageErrorf("receipts verify: give --server-key, which is server_key of the " +
				"round's description, or --signed-by for the record of a withdrawal " +
				"(fmp pool --record)")
		}
		// The bound of a record serves for all three kinds of files.
		data, err := regularfile.ReadFile(args[0], pool.MaxWithdrawal)
		if err != nil {
			return usageError(fmt.Errorf("receipts verify: %w", err))
		}
		if !json.Valid(data) {
			return usageErrorf("receipts verify: %s is no receipt: it is not JSON", args[0])
		}
		// The kind is told by fields alone, before any signature: a wrong guess fails its
		// verification.
		read, by := verifyReceipt, server
		switch record := pool.IsWithdrawal(data); {
		case record != (roster != ""):
			return usageErrorf("receipts verify: %s: --signed-by is of the record of a withdrawal "+
				"(fmp pool --record), and --server-key of every receipt: give the one that goes "+
				"with the file", args[0])
		case record:
			read, by = verifyRecord, roster
		case wire.IsWithdrawal(data):
			read = verifyWithdrawal
		}
		show, err := read(cmd, data, by, upload)
		if err != nil {
			return fmt.Errorf("receipts verify: %s: %w", args[0], err)
		}
		return show()
	}
	return cmd
}

// verifyReceipt verifies the receipt of an upload, and of a file of it if one is given. show prints
// it once all holds. The signature does not cover Bytes, so that a size that differs is an error
// only beside the file.
func verifyReceipt(cmd *cobra.Command, data []byte, server, upload string) (show func() error,
	err error) {
	r, err := wire.ReadReceipt(data, server)
	if err != nil {
		return nil, err
	}
	v := verified{Receipt: *r, UploadFile: upload}
	if upload != "" {
		size, err := isOfFile(&v.Receipt, upload)
		if err != nil {
			return nil, err
		}
		if size != r.Bytes {
			return nil, fmt.Errorf("its bytes, which are not signed, are not the %d of %s",
				size, upload)
		}
		v.Bytes = &size
	}
	return func() error { return v.print(cmd, "holds") }, nil
}

// verifyWithdrawal is verifyReceipt for the receipt of a withdrawal. A withdrawal states no size,
// so that the file's digest alone ties it to the upload.
func verifyWithdrawal(cmd *cobra.Command, data []byte, server,
	upload string) (func() error, error) {
	w, err := wire.ReadWithdrawal(data, server)
	if err != nil {
		return nil, err
	}
	if upload != "" {
		of := &wire.Receipt{Round: w.Round, Client: w.Client, Graph: w.Graph, Upload: w.Upload}
		if _, err := isOfFile(of, upload); err != nil {
			return nil, err
		}
	}
	return func() error {
		return say(cmd, struct {
			*wire.Withdrawal
			UploadFile string `json:"upload_file,omitempty"`
		}{w, upload}, "receipt:   holds\n%s", wire.Printed(w))
	}, nil
}

// verifyRecord verifies the record of a withdrawal by a roster, and that it names an upload if one
// is given. An upload is looked for by its digest, the sha256 of the whole message. A record
// without the given upload is an error, also where its signature holds.
func verifyRecord(cmd *cobra.Command, data []byte, roster, upload string) (func() error, error) {
	signers, err := identity.LoadRoster(roster)
	if err != nil {
		return nil, usageError(fmt.Errorf("--signed-by: %w", err))
	}
	w, err := pool.VerifyWithdrawal(data, signers)
	if err != nil {
		return nil, err
	}
	if upload != "" {
		message, err := regularfile.ReadFile(upload, federate.MaxBytes)
		if err != nil {
			return nil, usageError(fmt.Errorf("--upload: %w", err))
		}
		digest := models.DigestBytes(message)
		if !slices.ContainsFunc(w.Withdrawn,
			func(c models.OriginClient) bool { return c.Upload == digest }) {
			return nil, fmt.Errorf("it names no upload of sha256 %s, which is that of %s", digest,
				upload)
		}
	}
	return func() error {
		return tell(cmd, w, func(b *strings.Builder) {
			fmt.Fprintf(b, "record:     holds; signed by %q at %s\n", w.Signer,
				w.Time.Format(time.RFC3339))
			for _, c := range w.Withdrawn {
				fmt.Fprintf(b, "withdrawn:  %q from round %d, %d images, sha256 %s\n", c.Name,
					w.Round, c.N, c.Upload)
			}
			fmt.Fprintf(b, "without:    sha256 %s\n", w.Classifier)
			for _, of := range []struct {
				what     string
				versions []pool.Version
			}{{"held by:   ", w.Holds}, {"free:      ", w.Free}, {"not known: ", w.Unknown}} {
				for _, v := range of.versions {
					fmt.Fprintf(b, "%s %q, sha256 %s\n", of.what, v.File, v.SHA256)
				}
			}
		})
	}, nil
}

// isOfFile is isOf for a file, whose size it returns. A file beyond federate.MaxBytes is refused.
func isOfFile(r *wire.Receipt, path string) (size int, err error) {
	message, err := regularfile.ReadFile(path, federate.MaxBytes)
	if err != nil {
		return 0, usageError(fmt.Errorf("--upload: %w", err))
	}
	if err := isOf(r, message); err != nil {
		return 0, fmt.Errorf("not the receipt of %s: %w", path, err)
	}
	return len(message), nil
}

// isOf returns an error unless a receipt, whose signature holds, is of a message. Digest, round,
// client and client graph must be the message's. A message is decoded by the bounds of servers,
// without a client graph to compare. The digest is compared first: a message of other bytes is not
// decoded.
func isOf(r *wire.Receipt, message []byte) error {
	if digest := models.DigestBytes(message); digest != r.Upload {
		return fmt.Errorf("it is of sha256 %s; the file has %s", r.Upload, digest)
	}
	var round uint64
	var client, graph string
	if federate.IsRelease(message) {
		// A release without a salt is taken, as earlier programs made them: its receipt holds too.
		m, err := federate.DecodeRelease(message, federate.Expect{Unsalted: true})
		if err != nil {
			return err
		}
		round, client, graph = m.Round, m.Client, m.Model
	} else {
		m, err := federate.Decode(message, federate.Expect{})
		if err != nil {
			return err
		}
		round, client, graph = m.Round, m.Client, m.Model
	}
	if round != r.Round || client != r.Client || graph != r.Graph {
		return fmt.Errorf("it is of %q in round %d with client graph %s; the upload is of %q in "+
			"round %d with %s", r.Client, r.Round, r.Graph, client, round, graph)
	}
	return nil
}

// print writes a receipt for people or programs. The word or words of the first line say how the
// receipt came about. Only fields under the signature are printed, and the size where a file bore
// it out.
func (v *verified) print(cmd *cobra.Command, what string) error {
	size := ""
	if v.Bytes != nil {
		size = fmt.Sprintf("%d bytes, ", *v.Bytes)
	}
	spent := ""
	if v.Spent != nil {
		spent = fmt.Sprintf("spent:   %v\n", v.Spent)
	}
	return say(cmd, v, "receipt: %s; %q, round %d, in since %s\nupload:  %ssha256 %s\n%s", what,
		v.Client, v.Round, v.Time.Format(time.RFC3339), size, v.Upload, spent)
}

// newReceiptsFetchCommand declares fmp receipts fetch. The receipt must be of the key's client, the
// round and its graph: that of another client is signed as well. The file is written once all of it
// is checked. Without -o the receipt goes to standard output, as JSON with and without --json.
func newReceiptsFetchCommand() *cobra.Command {
	var path, ca, server, output string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "fetch URL --key FILE",
		Short: "Fetch the receipt of a client's upload again",
		Long: `Ask the server of a round for the receipt of the upload that it holds of a client, with the client's
key, check its signature, and write it to a file. Give --server-key as well if you have it:
otherwise the key is what the server says.`,
		Example: "  fmp receipts fetch https://server:8443 --key shop-17.key -o receipt.json " +
			"--ca server.crt",
		Args: rangeArgs(1, 1, "URL"),
	}
	f := cmd.Flags()
	f.StringVar(&path, "key", "", "key `FILE` of the client")
	f.StringVar(&ca, "ca", "", "`FILE` of certificates to trust in place of the system's")
	f.StringVar(&server, "server-key", "", "public `KEY` that the server must have (base64)")
	outFlag(cmd, &output, "output", "",
		"`FILE` to write (default: the receipt is printed as JSON)")
	f.DurationVar(&wait, "wait", time.Minute, "how long to wait for a server that does not answer")
	jsonFlag(cmd, "print the receipt as JSON beside -o")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if path == "" {
			return usageErrorf("receipts fetch: --key is missing; it is the file that fmp-edge " +
				"key or fmp keys wrote")
		}
		key, s, d, err := reach(cmd, "receipts fetch", path, args[0], ca, wait)
		if err != nil {
			return err
		}
		// Without --server-key the description's own key is believed.
		if server != "" && d.ServerKey != server {
			return fmt.Errorf("receipts fetch: the server's key is %s; --server-key is %s",
				d.ServerKey, server)
		}
		r, err := s.Receipt(cmd.Context(), d, key)
		if err != nil {
			return fmt.Errorf("receipts fetch: %w", err)
		}
		if r.Client != key.Name || r.Round != d.Round || r.Graph != d.Graph {
			return fmt.Errorf("receipts fetch: the server sent the receipt of %q in round %d; "+
				"asked was for that of %q in round %d", r.Client, r.Round, key.Name, d.Round)
		}
		if output == "" {
			return printable.WriteJSON(cmd.OutOrStdout(), r)
		}
		if err := sender.SaveReceipt(output, r); err != nil {
			return fmt.Errorf("receipts fetch: %w", err)
		}
		if wantsJSON(cmd) {
			return printable.WriteJSON(cmd.OutOrStdout(), r)
		}
		v := verified{Receipt: *r}
		return v.print(cmd, "written to "+output)
	}
	return cmd
}

// newWithdrawCommand declares fmp withdraw. A client whose withdrawal fails stops no other;
// receipts are printed before the errors. Clients are withdrawn one by one, in the order of the
// arguments.
func newWithdrawCommand() *cobra.Command {
	var path, ca string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "withdraw URL CLIENT... --key FILE",
		Short: "Withdraw clients' uploads from a served round, as its operator",
		Long: `Delete the uploads of clients from a round that fmp serve has, and have it make a classifier without
them at once: byte for byte the one that they never took part in. Versions that held one are handed
out no more. The server must run; the request is signed with its key, server.key in its folder of
state. A client withdraws its own upload with fmp-edge withdraw.

A client that is taken out of the roster keeps its upload in the round: this command takes it out.
It is for good: nothing of the client is taken in this round again. Rounds whose servers add the
noise take nothing out.`,
		Example: `  fmp withdraw https://127.0.0.1:8443 ward-1 --key state/server.key \
    --ca state/server.crt
  fmp withdraw https://server.example:8443 ward-1 ward-2 --key state/server.key \
    --json > withdrawals.json`,
		Args: rangeArgs(2, 0, "URL CLIENT..."),
	}
	f := cmd.Flags()
	f.StringVar(&path, "key", "", "`FILE` of the server's key: server.key in its folder of state")
	f.StringVar(&ca, "ca", "", "`FILE` of certificates to trust in place of the system's")
	f.DurationVar(&wait, "wait", time.Minute, "how long to wait for a server that does not answer")
	jsonFlag(cmd, "print the receipts as JSON, a list")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if path == "" {
			return usageErrorf("withdraw: --key is missing: the server's key, server.key in its " +
				"folder of state")
		}
		key, s, d, err := reach(cmd, "withdraw", path, args[0], ca, wait)
		if err != nil {
			return err
		}
		// The key is compared here, so that a wrong file is told before any request is signed.
		if d.ServerKey != key.PublicText() {
			return usageErrorf("withdraw: the server's key is %s, and --key is %s: it is no key "+
				"of this server", d.ServerKey, key.PublicText())
		}
		done := []*wire.Withdrawal{}
		var failed error
		for _, client := range args[1:] {
			w, err := s.WithdrawFor(cmd.Context(), d, key, client)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("withdraw: client %q: %w", client, err))
				continue
			}
			done = append(done, w)
		}
		return errors.Join(show(cmd, done, func(out io.Writer) error {
			for _, w := range done {
				if _, err := io.WriteString(out, wire.Printed(w)); err != nil {
					return err
				}
			}
			return nil
		}), failed)
	}
	return cmd
}

// reach loads a key and asks the server at a URL which round it has. Errors have the command's
// name. wait bounds how long a server that does not answer is asked again. With an error the key,
// the client and the description may be nil or unfinished, and are not for use.
func reach(cmd *cobra.Command, name, path, url, ca string,
	wait time.Duration) (*identity.Key, *sender.Client, *wire.Description, error) {
	key, err := identity.Load(path)
	if err != nil {
		return nil, nil, nil, usageError(fmt.Errorf("%s: %w", name, err))
	}
	s, err := sender.New(url, ca)
	if err != nil {
		return nil, nil, nil, usageError(fmt.Errorf("%s: %w", name, err))
	}
	s.Wait = wait
	s.Log = func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "fmp: "+format+"\n", args...)
	}
	d, err := s.Describe(cmd.Context())
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return key, s, d, err
}
