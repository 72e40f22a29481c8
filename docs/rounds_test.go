package docs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/lab/attack"
)

// keptRounds are the runs of fmp bench round in results/federation (federation.sh), and what their
// rows are called.
var keptRounds = []struct{ file, title string }{
	{"cifar10-0", "CIFAR-10, homogeneous"},
	{"cifar10-0.1", "CIFAR-10, α = 0.1"},
	{"mnist-0", "MNIST, homogeneous"},
	{"mnist-0.1", "MNIST, α = 0.1"},
	{"cifar10-100", "CIFAR-10, 100 clients (20 bad)"},
	{"open-0", "open scope, homogeneous"},
	{"open-0.1", "open scope, α = 0.1"},
}

// keptRound is the part of a file that the tables show.
type keptRound struct {
	Clients    int
	Defences   []string
	Attacks    attack.Table
	Sizes      *attack.SizesRow
	Lost       []attack.ScoreRow
	Precisions []attack.ScoreRow
	Rivals     []attack.ScoreRow
	Membership []attack.MembershipRow
}

// short is a figure of 0 to 1, as .123.
func short(v float64) string {
	if v > -.0005 && v < 0 {
		v = 0
	}
	return strings.Replace(fmt.Sprintf("%.3f", v), "0.", ".", 1)
}

// readRounds reads the kept runs, in the order of keptRounds; no others are kept.
func readRounds(t *testing.T) []keptRound {
	t.Helper()
	entries, err := os.ReadDir("results/federation")
	if err != nil || len(entries) != len(keptRounds) {
		t.Errorf("%d files in results/federation, %d in the tables (%v)", len(entries),
			len(keptRounds), err)
	}
	out := make([]keptRound, len(keptRounds))
	for i, k := range keptRounds {
		readJSON(t, filepath.Join("federation", k.file+".json"), &out[i])
	}
	return out
}

// TestResultsPageOfAttacks: the tables of bad clients are those of the kept runs.
func TestResultsPageOfAttacks(t *testing.T) {
	var attacks, masses, kinds, sizes strings.Builder
	kindsOf := make([]strings.Builder, len(attack.Attacks))
	kinds.WriteString("| honesty's loss beyond the oracle's |")
	heading(&sizes, "ACC / NLL / ECE | honest clients | as claimed | as counted")
	for i, r := range readRounds(t) {
		title := keptRounds[i].title
		none, honesty, oracle := slices.Index(r.Defences, "none"), slices.Index(r.Defences, "honesty"),
			slices.Index(r.Defences, "oracle")
		if i == 0 {
			fmt.Fprintf(&attacks, "| | in peace | %s |\n|%s\n", strings.Join(r.Defences, " | "),
				strings.Repeat(" --- |", len(r.Defences)+2))
			masses.WriteString("| largest loss, none / honesty, at a claim of |")
			for _, m := range attack.Multiples {
				fmt.Fprintf(&masses, " %s × |", thousands(int64(m)))
			}
			fmt.Fprintf(&masses, " oracle |\n|%s\n", strings.Repeat(" --- |", len(attack.Multiples)+2))
		}
		fmt.Fprintf(&attacks, "| %s | %s |", title, short(r.Attacks.Peace))
		for j := range r.Attacks.Mean {
			cell := short(r.Attacks.Mean[j]) + " / " + short(r.Attacks.Worst[j])
			if j == honesty {
				cell = "**" + cell + "**"
			}
			fmt.Fprintf(&attacks, " %s |", cell)
		}
		attacks.WriteString("\n")
		fmt.Fprintf(&masses, "| %s |", title)
		for _, worst := range r.Attacks.ByMultiple {
			fmt.Fprintf(&masses, " %s / **%s** |", short(worst[none]), short(worst[honesty]))
		}
		fmt.Fprintf(&masses, " %s |\n", short(r.Attacks.Worst[oracle]))
		fmt.Fprintf(&kinds, " %s |", title)
		for j := range kindsOf {
			worst := math.Inf(-1)
			for _, row := range r.Attacks.Rows[1+j*len(attack.Multiples):][:len(attack.Multiples)] {
				worst = max(worst, row.Accuracy[oracle]-row.Accuracy[honesty])
			}
			fmt.Fprintf(&kindsOf[j], " %s |", short(worst))
		}
		if s := r.Sizes; s != nil && r.Clients == 10 {
			fmt.Fprintf(&sizes, "| %s | %d of %d images, %d of %d | %s / %s / %s | %s / %s / %s |\n",
				strings.TrimSuffix(title, ", homogeneous"), s.LargeClients, s.Large,
				s.SmallClients, s.Small, short(s.Claimed.ACC), short(s.Claimed.NLL),
				short(s.Claimed.ECE), short(s.Counted.ACC), short(s.Counted.NLL), short(s.Counted.ECE))
		}
	}
	fmt.Fprintf(&kinds, "\n|%s\n", strings.Repeat(" --- |", len(keptRounds)+1))
	for i, a := range attack.Attacks {
		fmt.Fprintf(&kinds, "| **%s**: %s |%s\n", a.Name, a.Does, kindsOf[i].String())
	}
	for name, text := range map[string]string{"attacks": attacks.String(), "masses": masses.String(),
		"kinds": kinds.String(),
		"sizes": sizes.String()} {
		write(t, "byzantine.md", name, text)
	}
}

// TestResultsPageOfRounds: the other tables of the page on rounds are those of the kept runs.
func TestResultsPageOfRounds(t *testing.T) {
	var lost, bytes, members strings.Builder
	for i, r := range readRounds(t) {
		k := keptRounds[i]
		if i == 0 {
			lost.WriteString("| ACC / NLL / ECE with so many lost |")
			for _, s := range r.Lost {
				fmt.Fprintf(&lost, " %s |", strings.TrimSuffix(s.Name, " lost"))
			}
			fmt.Fprintf(&lost, "\n|%s\n", strings.Repeat(" --- |", len(r.Lost)+1))
			bytes.WriteString("| bytes: ACC / NLL / ECE |")
			uploads := append(slices.Clone(r.Precisions), r.Rivals...)
			for j, s := range uploads {
				name := s.Name
				switch {
				case j < len(r.Precisions):
					name = "FMP, " + name
				case name == "ANN":
					name = "ANN (raw features)"
				}
				fmt.Fprintf(&bytes, " %s |", name)
			}
			fmt.Fprintf(&bytes, "\n|%s\n", strings.Repeat(" --- |", len(uploads)+1))
			members.WriteString("| images of the client |")
			for _, m := range r.Membership {
				fmt.Fprintf(&members, " %s |", thousands(int64(m.N)))
			}
			fmt.Fprintf(&members, "\n|%s\n", strings.Repeat(" --- |", len(r.Membership)+1))
		}
		fmt.Fprintf(&lost, "| %s |", k.title)
		for _, s := range r.Lost {
			fmt.Fprintf(&lost, " %s / %s / %s |", short(s.ACC), short(s.NLL), short(s.ECE))
		}
		lost.WriteString("\n")
		fmt.Fprintf(&bytes, "| %s |", k.title)
		for _, s := range append(slices.Clone(r.Precisions), r.Rivals...) {
			fmt.Fprintf(&bytes, " %s: %s / %s / %s |", thousands(int64(s.Bytes+.5)), short(s.ACC),
				short(s.NLL), short(s.ECE))
		}
		bytes.WriteString("\n")
		if strings.HasSuffix(k.file, "-0") {
			fmt.Fprintf(&members, "| %s |",
				strings.TrimSuffix(strings.TrimSuffix(k.title, ", homogeneous"), ","))
			for _, m := range r.Membership {
				fmt.Fprintf(&members, " %.2f |", m.AUC)
			}
			members.WriteString("\n")
		}
	}
	for name, text := range map[string]string{"lost": lost.String(), "bytes": bytes.String(),
		"membership": members.String()} {
		write(t, "federate.md", name, text)
	}
	write(t, "data-manager.md", "membership", members.String())
}
