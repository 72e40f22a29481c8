package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/printable"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
)

// withdrawCommand checks the place of its receipt before it asks for the withdrawal, which cannot
// be taken back. It may be given again: the receipt then tells which classifier took the place of
// the others.
// The order is: key, round, the server's key, the receipt's place, the request, the receipt. An
// error of the request leaves no receipt behind.
var withdrawCommand = command{
	name: "withdraw", args: "URL --key FILE",
	short: "Withdraw this client's upload from a round, whether it is open or closed",
	example: `  fmp-edge withdraw https://server:8443 --key shop-17.key
  fmp-edge withdraw https://server:8443 --key shop-17.key --ca server.crt --json

The server deletes the upload and makes at once a classifier without it: byte for byte the one that
this client never took part in. Versions that held it are handed out no more, and a signed notice
names them. The receipt, which the server signs, says which versions these are, which one takes
their place, and what cannot be undone. The same command says later which one that is.

It is for good: nothing of this client is taken in this round again. Rounds whose servers add the
noise take nothing out, as one noisy sum hides the uploads; join says so before anything is sent.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		path := f.String("key", "", "key file of this client")
		ca := f.String("ca", "", "file of certificates to trust in place of the system's")
		server := f.String("server-key", "",
			"public key that the server must have (base64), as its operators give it")
		receipt := f.String("receipt", "", "receipt to write (default: KEY.ROUND.withdrawal.json)")
		outputs.Files(f, "receipt")
		wait := f.Duration("wait", time.Hour, "how long to wait for a server that does not answer")
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if len(args) != 1 || *path == "" {
				return usagef("withdraw: give the server's address and --key FILE; see fmp-edge " +
					"withdraw --help")
			}
			if err := checkWait("withdraw", *wait); err != nil {
				return err
			}
			// The key's name is the client's, and no flag gives another.
			key, err := identity.Load(*path)
			if err != nil {
				return refused("withdraw", err)
			}
			s, d, err := dial(ctx, "withdraw", args[0], *ca, *wait, log)
			if err != nil {
				return err
			}
			// The key is compared before the request is signed.
			if *server != "" && d.ServerKey != *server {
				return fmt.Errorf("withdraw: the server's key is %s; --server-key is %s",
					d.ServerKey, *server)
			}
			// The round is in the name, so that receipts of several rounds lie side by side.
			file := cmp.Or(*receipt, besideKey(*path, d.Round, "withdrawal.json"))
			own := receiptOf(d, key.Name, true)
			if _, err := free("withdraw", content{path: file, own: own}); err != nil {
				return fmt.Errorf("%w; nothing was withdrawn", err)
			}
			w, err := s.Withdraw(ctx, d, key)
			if err != nil {
				return err
			}
			if err := saveReceipt("withdraw", file, w, own); err != nil {
				// The withdrawal is done though its receipt is not kept; the same command asks for
				// it again.
				return fmt.Errorf("the upload is withdrawn: %w", err)
			}
			if *asJSON {
				return printable.WriteJSON(out, w)
			}
			_, err = fmt.Fprintf(out, "%sreceipt:   %s\n", wire.Printed(w), file)
			return err
		}
	},
}
