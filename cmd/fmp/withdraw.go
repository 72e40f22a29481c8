package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
)

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
		Example: `  fmp withdraw https://127.0.0.1:8443 ward-1 --key state/server.key --ca state/server.crt
  fmp withdraw https://server.example:8443 ward-1 ward-2 --key state/server.key --json > withdrawals.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageErrorf("withdraw: give the server's URL and one CLIENT or more")
			}
			return nil
		},
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
		if d.ServerKey != key.PublicText() {
			return usageErrorf(
				"withdraw: the server's key is %s, and --key is %s: it is no key of this server",
				d.ServerKey,
				key.PublicText())
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
// name.
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
	s.Log = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "fmp: "+format+"\n", args...) }
	d, err := s.Describe(cmd.Context())
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return key, s, d, err
}
