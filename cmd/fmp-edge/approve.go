package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"fmp/models/signature"
	"fmp/onnx/regularfile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

// approvedFlag is where the extractors are listed that may run on this owner's images. "" is the
// default, which approvedFile resolves.
func approvedFlag(f *pflag.FlagSet) *string {
	return f.String("approved", "", "file of the extractors that may run on the images (default: "+
		"fmp/approved in the user's folder for configuration)")
}

// approvedFile is the list that the flag names, else the one in the user's folder. The file need
// not be there yet. An error is that of a user without such a folder.
func approvedFile(flag string) (client.Approved, error) {
	if flag != "" {
		return client.Approved{Path: flag}, nil
	}
	path, err := client.DefaultFile("approved", "--approved")
	return client.Approved{Path: path}, err
}

// yesFlag is the answer of a script to the question about an unknown extractor.
const yesFlag = "yes-trust-this-extractor"

// described is the description of an extractor for the owner of the images that it is to run on.
func described(c *client.Client) string {
	a := c.Parsed
	from := ""
	if name := client.Known(a.Extractor); name != "" {
		from = fmt.Sprintf(", which this program knows (%s)", name)
	}
	return fmt.Sprintf("sha256 %s%s: %d nodes with %d parameters (%d bytes) turn an image of %d "+
		"numbers into %d features", a.Extractor, from, a.Nodes, a.Numbers, a.Bytes,
		a.Pixels, c.Manifest.Dx)
}

// untrustedError is the refusal of an extractor that nobody approved, with the flag that does so.
// It has exit code 5, and execute prints the command line that approves.
type untrustedError struct {
	err    error
	digest string
}

func (e *untrustedError) Error() string { return e.err.Error() }
func (e *untrustedError) Unwrap() error { return e.err }

// terminal is where a person answers; nil where there is none. Tests put their own in its place.
// Standard input that is a file or a pipe is nobody's answer.
var terminal = func() io.Reader {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return os.Stdin
	}
	return nil
}

// trust returns an error unless the extractor of a client graph may run on the images: one that is
// known, one that was approved for the scope, or one that the owner says yes to, with its digest on
// the command line or at the terminal. A yes is written down for the scope. A digest on the command
// line that is another extractor's is an error, also where the extractor is known: the script means
// another graph. No image has been read by then, and nothing sent.
func trust(ctx context.Context, c *client.Client, scope, file, yes string, log io.Writer) error {
	digest := c.Parsed.Extractor
	if yes != "" && yes != digest {
		return usagef("--%s says %s, and the client graph's extractor is %s: nothing was read "+
			"and nothing sent", yesFlag, yes, digest)
	}
	approved, err := approvedFile(file)
	if err != nil {
		return err
	}
	err = c.Trust(approved, scope)
	var unknown *client.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	fmt.Fprintf(log, "fmp-edge: %v\nfmp-edge: extractor %s\nfmp-edge: %s\n", unknown,
		described(c), c.Can())
	if yes == "" {
		if err := ask(ctx, unknown, log); err != nil {
			return err
		}
	}
	if err := approved.Add(digest, scope); err != nil {
		return fmt.Errorf("approved extractors: %w", err)
	}
	fmt.Fprintf(log, "fmp-edge: approved from now on for %s (%s)\n", scope, approved.Path)
	return nil
}

// ask returns nil where a person at the terminal says yes. The read of the terminal cannot be
// interrupted, and is left behind where the context ends. Only the word yes counts, and a line of 1
// KiB at most is read.
func ask(ctx context.Context, unknown *client.UnknownError, log io.Writer) error {
	from := terminal()
	if from == nil {
		return &untrustedError{fmt.Errorf("the extractor %s is not approved for %s: nothing was "+
			"read and nothing sent", unknown.Digest, unknown.Scope), unknown.Digest}
	}
	fmt.Fprint(log, "fmp-edge: let it run on the images? Type yes, or anything else for no: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(from, 1<<10)).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-answer:
		if a != "yes" {
			return &untrustedError{errors.New(
				"the extractor was not approved: nothing was read and nothing sent"),
				unknown.Digest}
		}
	}
	return nil
}

// withYes is a command line that approves an extractor, as it is typed in a shell. A word of other
// characters than these is quoted by POSIX rules. The flag goes last: of a flag that is given twice
// the last value counts. The whole command is printed, so that it can be pasted.
func withYes(args []string, digest string) string {
	text := "fmp-edge"
	for _, a := range append(slices.Clone(args), "--"+yesFlag, digest) {
		if strings.Trim(a,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%") != "" ||
			a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		text += " " + a
	}
	return text
}

// It reads no image, and asks no question: to give the command is the answer.
var approveCommand = command{
	name: "approve", args: "GRAPH",
	short: "Let the extractor of a client graph run on this owner's images",
	example: `  fmp-edge approve client.onnx

The graph is taken apart as for compress, and the digest of its extractor is added to the file of
approved ones, for all servers. Extractors that come with this program, and those of fmp extractors
pull, need it not; compress and join ask about any other.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		file := approvedFlag(f)
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) != 1 {
				return usagef("approve: %d arguments; want one client graph", len(args))
			}
			c, err := openClient(args[0], 0)
			if err != nil {
				return refused("approve", err)
			}
			approved, err := approvedFile(*file)
			if err == nil {
				err = approved.Add(c.Parsed.Extractor, client.Everywhere)
			}
			if err != nil {
				return fmt.Errorf("approve: %w", err)
			}
			_, err = fmt.Fprintf(out, "approved: %s\n%s\nin:       %s\n", described(c),
				c.Can(), approved.Path)
			return err
		}
	},
}

// Flags of the commands that run a model: whose signature it must have.
const signedBy, signatureOf = "signed-by", "signature"

// signerFlags declares them; checkSigned reads them by name from any set that has them. Both are
// texts, "" for none.
func signerFlags(f *pflag.FlagSet) {
	f.String(signedBy, "", "public key (PEM, P-256) that must have signed the model (fmp sign)")
	f.String(signatureOf, "",
		"signature of the model (default: that of the round, or the model's name with .sig)")
}

// checkSigned reports whether a model of a SHA-256 is signed as the flags require: by the signature
// that they name, else by the one given, else by that beside the model. Without --signed-by every
// model is taken. given is a bundle's bytes, nil for none. A signature that does not hold is no
// usage error (exit code 1).
func checkSigned(f *pflag.FlagSet, model, digest string, given []byte) error {
	by, path := f.Lookup(signedBy).Value.String(), f.Lookup(signatureOf).Value.String()
	if by == "" {
		if path != "" {
			return usagef("--%s is given without --%s, the key that verifies it",
				signatureOf, signedBy)
		}
		return nil
	}
	key, err := signature.LoadPublic(by)
	if err != nil {
		return &usageError{fmt.Errorf("--%s: %w", signedBy, err)}
	}
	if path != "" || given == nil {
		path = cmp.Or(path, model+".sig")
		if given, err = regularfile.ReadFile(path, signature.MaxBundle); err != nil {
			return &usageError{fmt.Errorf("--%s asks for a signature of %s: %w",
				signedBy, model, err)}
		}
	}
	m, err := signature.Verify(key, given)
	if err == nil {
		err = m.CheckDigest(model, digest)
	}
	if err != nil {
		return fmt.Errorf("%s is not used: %w", model, err)
	}
	return nil
}

// checkRound reports whether a round's client graph, which need not be here yet, is signed as the
// flags require: by the signature that the server hands out, unless they name another. The graph is
// used only if it has the round's SHA-256, so that the flags are then done with. Both flags are set
// to "" at the end: compress would look for a signature beside its copy of the graph.
func checkRound(f *pflag.FlagSet, d *wire.Description) error {
	if f.Lookup(signedBy).Value.String() != "" && f.Lookup(signatureOf).Value.String() == "" &&
		len(d.GraphSignature) == 0 {
		return usagef("round %d comes without a signature of its client graph, and --%s asks for "+
			"one: have the server's people put it beside the graph (fmp sign), or give it with "+
			"--%s; nothing was sent", d.Round, signedBy, signatureOf)
	}
	if p := f.Lookup("calibrate"); p.Changed && p.Value.String() != "0" &&
		p.Value.String() != fmt.Sprint(d.Calibrate) {
		// More points than the round takes would make an upload that it refuses.
		if n, err := f.GetInt("calibrate"); err != nil || n > d.Calibrate {
			return usagef("round %d takes up to %d calibration points, and --calibrate asks for "+
				"%s; nothing was sent", d.Round, d.Calibrate, p.Value)
		}
	}
	if err := checkSigned(f, fmt.Sprintf("client graph of round %d", d.Round), d.Graph,
		d.GraphSignature); err != nil {
		return err
	}
	return errors.Join(f.Set(signedBy, ""), f.Set(signatureOf, ""))
}
