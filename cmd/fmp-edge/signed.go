package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"fmp/models/signature"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/wire"
)

// Flags of the commands that run a model: whose signature it must have.
const signedBy, signatureOf = "signed-by", "signature"

func signerFlags(f *pflag.FlagSet) {
	f.String(signedBy, "", "public key (PEM, P-256) that must have signed the model (fmp sign)")
	f.String(signatureOf, "",
		"signature of the model (default: that of the round, or the model's name with .sig)")
}

// checkSigned reports whether a model of a SHA-256 is signed as the flags require: by the signature
// that they name, else by the one given, else by that beside the model. Without --signed-by every
// model is taken.
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
			return &usageError{fmt.Errorf("--%s asks for a signature of %s: %w", signedBy, model, err)}
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
// used only if it has the round's SHA-256, so that the flags are then done with.
func checkRound(f *pflag.FlagSet, d *wire.Description) error {
	if f.Lookup(signedBy).Value.String() != "" && f.Lookup(signatureOf).Value.String() == "" &&
		len(d.GraphSignature) == 0 {
		return usagef("round %d comes without a signature of its client graph, and --%s asks for one: "+
			"have the server's people put it beside the graph (fmp sign), or give it with --%s; "+
			"nothing was sent", d.Round, signedBy, signatureOf)
	}
	if p := f.Lookup("calibrate"); p.Changed && p.Value.String() != "0" &&
		p.Value.String() != fmt.Sprint(d.Calibrate) {
		if n, err := f.GetInt("calibrate"); err != nil || n > d.Calibrate {
			return usagef(
				"round %d takes up to %d calibration points, and --calibrate asks for %s; nothing was sent",
				d.Round, d.Calibrate, p.Value)
		}
	}
	if err := checkSigned(f, fmt.Sprintf("client graph of round %d", d.Round), d.Graph,
		d.GraphSignature); err != nil {
		return err
	}
	return errors.Join(f.Set(signedBy, ""), f.Set(signatureOf, ""))
}
