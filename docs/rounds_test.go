package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/lab/attack"
)

// keptRounds are the runs of fmp bench round in results/federation (federation.sh), and what their rows are called.
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
	Defences   []string
	Attacks    attack.AttackTable
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

// TestResultsPageOfRounds: the tables of the page on rounds are those of the kept runs, all of which stand in them.
func TestResultsPageOfRounds(t *testing.T) {
	entries, err := os.ReadDir("results/federation")
	if err != nil || len(entries) != len(keptRounds) {
		t.Errorf("%d files in results/federation, %d in the tables (%v)", len(entries), len(keptRounds), err)
	}
	var attacks, lost, bytes, members strings.Builder
	for i, k := range keptRounds {
		data, err := os.ReadFile(filepath.Join("results/federation", k.file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r keptRound
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			fmt.Fprintf(&attacks, "| | in peace | %s |\n|%s\n", strings.ReplaceAll(strings.Join(r.Defences, " | "), "oracle", "who knows the bad ones"), strings.Repeat(" --- |", len(r.Defences)+2))
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
		fmt.Fprintf(&attacks, "| %s | %s |", k.title, short(r.Attacks.Peace))
		for j := range r.Attacks.Mean {
			cell := short(r.Attacks.Mean[j]) + " / " + short(r.Attacks.Worst[j])
			if r.Defences[j] == "honesty" {
				cell = "**" + cell + "**"
			}
			fmt.Fprintf(&attacks, " %s |", cell)
		}
		attacks.WriteString("\n")
		fmt.Fprintf(&lost, "| %s |", k.title)
		for _, s := range r.Lost {
			fmt.Fprintf(&lost, " %s / %s / %s |", short(s.ACC), short(s.NLL), short(s.ECE))
		}
		lost.WriteString("\n")
		fmt.Fprintf(&bytes, "| %s |", k.title)
		for _, s := range append(slices.Clone(r.Precisions), r.Rivals...) {
			fmt.Fprintf(&bytes, " %s: %s / %s / %s |", thousands(int64(s.Bytes+.5)), short(s.ACC), short(s.NLL), short(s.ECE))
		}
		bytes.WriteString("\n")
		if strings.HasSuffix(k.file, "-0") {
			fmt.Fprintf(&members, "| %s |", strings.TrimSuffix(strings.TrimSuffix(k.title, ", homogeneous"), ","))
			for _, m := range r.Membership {
				fmt.Fprintf(&members, " %.2f |", m.AUC)
			}
			members.WriteString("\n")
		}
	}
	for name, text := range map[string]string{"attacks": attacks.String(), "lost": lost.String(), "bytes": bytes.String(), "membership": members.String()} {
		write(t, "federate.md", name, text)
	}
}
