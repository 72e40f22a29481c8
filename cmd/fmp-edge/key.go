package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"fmp/pipeline/federate/identity"
)

// keyCommand makes a key where it is given a name, and else prints the line of the one in the file.
// A key that is there is never replaced: another key would be another client to a roster. Only the
// public half is printed.
// A bad name, a file that is there and a key that cannot be read are usage errors alike.
var keyCommand = command{
	name: "key", args: "[--client NAME] FILE",
	short: "Make this client's key; print its line for the server's roster",
	example: `  fmp-edge key --client shop-17 shop-17.key

The key stays on this machine, in a file that its owner alone can read. The line that is printed
holds the public half: send it to the server's people, who add it to the roster. Without --client
the line of a key that is there is printed again.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		name := f.String("client", "", "name of this client, 1 to 128 bytes")
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) != 1 {
				return usagef("key: want --client NAME and the FILE to write, or the " +
					"FILE of a key alone")
			}
			var k *identity.Key
			var err error
			if *name == "" {
				if k, err = identity.Load(args[0]); err != nil {
					err = fmt.Errorf("%w (--client NAME makes a key)", err)
				}
			} else if k, err = identity.New(*name); err == nil {
				err = k.Save(args[0])
			}
			if err != nil {
				return &usageError{fmt.Errorf("key: %w", err)}
			}
			_, err = fmt.Fprintln(out, k.Line())
			return err
		}
	},
}
