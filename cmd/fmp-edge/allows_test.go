package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// TestAllows: a round that gives less privacy than its client's flags ask for is refused, whatever
// its server says, and no other.
func TestAllows(t *testing.T) {
	budget := func(epsilon, delta float64, noise string) *privacy.Budget {
		return &privacy.Budget{Epsilon: epsilon, Delta: delta, Noise: noise}
	}
	for name, c := range map[string]struct {
		flags string
		round *privacy.Budget
		want  string // empty: allowed
	}{
		"no flags, plain":        {"", nil, ""},
		"no flags, any":          {"", budget(20, 0.01, privacy.Trusted), ""},
		"private":                {"--private", nil, "is not private"},
		"noise of a plain round": {"--noise=local", nil, "is not private"},
		"epsilon":                {"--max-epsilon=2", budget(2, 1e-5, privacy.Local), ""},
		"larger epsilon": {"--max-epsilon=2", budget(2.1, 1e-5, privacy.Local),
			"--max-epsilon allows 2"},
		"larger delta": {"--max-epsilon=2", budget(2, 2e-5, privacy.Local),
			"--max-delta allows 1e-05"},
		"larger delta that is allowed": {"--max-epsilon=2 --max-delta=0.001",
			budget(2, 0.001, privacy.Local), ""},
		"any delta": {"--private", budget(2, 0.001, privacy.Local), ""},
		"delta alone": {"--private --max-delta=1e-12", budget(2, 1e-5, privacy.Local),
			"--max-delta allows 1e-12"},
		"delta of a plain round": {"--max-delta=1e-5", nil, "is not private"},
		"noise of the server": {"--noise=local", budget(2, 1e-5, privacy.Trusted),
			"--noise allows local"},
		"noise of two servers": {"--noise=local", budget(2, 1e-5, privacy.TwoServers),
			"--noise allows local"},
		"two servers' noise from one": {"--noise=two-servers", budget(2, 1e-5, privacy.Trusted),
			"--noise allows two-servers"},
		"noise of the client":           {"--noise=local", budget(2, 1e-5, privacy.Local), ""},
		"the server's noise is allowed": {"--noise=trusted", budget(2, 1e-5, privacy.Trusted), ""},
	} {
		f := pflag.NewFlagSet("join", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		flags := connectionFlags(f)
		must.Do(t, f.Parse(strings.Fields(c.flags)))
		err := flags.allows("join", &wire.Description{Privacy: c.round})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestKeyAgain: the line of a key that is there is printed again, and the key stays.
func TestKeyAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	first := run(t, "key", "--client", "a", path)
	if again := run(t, "key", path); again != first || !strings.HasSuffix(first, " a\n") {
		t.Errorf("%q; want %q", again, first)
	}
}
