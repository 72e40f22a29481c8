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

// keptRound is the part of a file that the tables show, and what its row is called.
type keptRound struct {
	title      string
	Clients    int
	Defences   []string
	Attacks    attack.Table
	Sizes      *attack.SizesRow
	Lost       []attack.ScoreRow
	Precisions []attack.ScoreRow
	Rivals     []attack.ScoreRow
	Membership []attack.MembershipRow
}

// three are the accuracy, NLL and ECE of a row.
func three(s attack.ScoreRow) string {
	return short(s.ACC) + " / " + short(s.NLL) + " / " + short(s.ECE)
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
		out[i].title = k.title
	}
	return out
}

// TestResultsPageOfAttacks: the tables of bad clients are those of the kept runs.
func TestResultsPageOfAttacks(t *testing.T) {
	var attacks, masses, kinds, sizes strings.Builder
	all := readRounds(t)
	defences := all[0].Defences
	none, honesty, oracle := slices.Index(defences, "none"), slices.Index(defences, "honesty"),
		slices.Index(defences, "oracle")
	heading(&attacks, " | in peace | %s", strings.Join(defences, " | "))
	heading(&masses, "largest loss, none / honesty, at a claim of%s | oracle", joined(attack.Multiples,
		func(m float64) string { return " | " + thousands(int64(m)) + " ×" }))
	heading(&kinds, "honesty's loss beyond the oracle's%s",
		joined(all, func(r keptRound) string { return " | " + r.title }))
	heading(&sizes, "ACC / NLL / ECE | honest clients | as claimed | as counted")
	for _, r := range all {
		fmt.Fprintf(&attacks, "| %s | %s |", r.title, short(r.Attacks.Peace))
		for j := range r.Attacks.Mean {
			cell := short(r.Attacks.Mean[j]) + " / " + short(r.Attacks.Worst[j])
			if j == honesty {
				cell = "**" + cell + "**"
			}
			fmt.Fprintf(&attacks, " %s |", cell)
		}
		attacks.WriteString("\n")
		fmt.Fprintf(&masses, "| %s |%s %s |\n", r.title, joined(r.Attacks.ByMultiple,
			func(worst []float64) string {
				return " " + short(worst[none]) + " / **" + short(worst[honesty]) + "** |"
			}), short(r.Attacks.Worst[oracle]))
		if s := r.Sizes; s != nil && r.Clients == 10 {
			fmt.Fprintf(&sizes, "| %s | %d of %d images, %d of %d | %s / %s / %s | %s / %s / %s |\n",
				strings.TrimSuffix(r.title, ", homogeneous"), s.LargeClients, s.Large,
				s.SmallClients, s.Small, short(s.Claimed.ACC), short(s.Claimed.NLL),
				short(s.Claimed.ECE), short(s.Counted.ACC), short(s.Counted.NLL), short(s.Counted.ECE))
		}
	}
	each := len(attack.Multiples)
	for i, a := range attack.Attacks {
		fmt.Fprintf(&kinds, "| **%s**: %s |%s\n", a.Name, a.Does, joined(all, func(r keptRound) string {
			worst := math.Inf(-1)
			for _, row := range r.Attacks.Rows[1+i*each:][:each] {
				worst = max(worst, row.Accuracy[oracle]-row.Accuracy[honesty])
			}
			return " " + short(worst) + " |"
		}))
	}
	write(t, "byzantine.md", "attacks", attacks.String())
	write(t, "byzantine.md", "masses", masses.String())
	write(t, "byzantine.md", "kinds", kinds.String())
	write(t, "byzantine.md", "sizes", sizes.String())
}

// TestResultsPageOfRounds: the other tables of the page on rounds are those of the kept runs.
func TestResultsPageOfRounds(t *testing.T) {
	var lost, bytes, members strings.Builder
	for i, r := range readRounds(t) {
		uploads := append(slices.Clone(r.Precisions), r.Rivals...)
		if i == 0 {
			heading(&lost, "ACC / NLL / ECE with so many lost%s", joined(r.Lost,
				func(s attack.ScoreRow) string { return " | " + strings.TrimSuffix(s.Name, " lost") }))
			heading(&bytes, "bytes: ACC / NLL / ECE%s%s", joined(r.Precisions,
				func(s attack.ScoreRow) string { return " | FMP, " + s.Name }), joined(r.Rivals,
				func(s attack.ScoreRow) string {
					if s.Name == "ANN" {
						s.Name = "ANN (raw features)"
					}
					return " | " + s.Name
				}))
			heading(&members, "images of the client%s", joined(r.Membership,
				func(m attack.MembershipRow) string { return " | " + thousands(int64(m.N)) }))
		}
		fmt.Fprintf(&lost, "| %s |%s\n", r.title,
			joined(r.Lost, func(s attack.ScoreRow) string { return " " + three(s) + " |" }))
		fmt.Fprintf(&bytes, "| %s |%s\n", r.title, joined(uploads, func(s attack.ScoreRow) string {
			return " " + thousands(int64(s.Bytes+.5)) + ": " + three(s) + " |"
		}))
		if strings.HasSuffix(keptRounds[i].file, "-0") {
			fmt.Fprintf(&members, "| %s |%s\n", strings.TrimSuffix(r.title, ", homogeneous"),
				joined(r.Membership, func(m attack.MembershipRow) string { return fmt.Sprintf(" %.2f |", m.AUC) }))
		}
	}
	write(t, "federate.md", "lost", lost.String())
	write(t, "federate.md", "bytes", bytes.String())
	write(t, "federate.md", "membership", members.String())
	write(t, "data-manager.md", "membership", members.String())
}
