package docs

import (
	"fmt"
	"strings"
	"testing"

	"fmp/pipeline/lab/attack"
)

// keptColluders are the runs of fmp bench round --colluders in results/colluders (colluders.sh).
// Those of a shipped anchor have a row without colluders.
var keptColluders = []struct {
	form, title string
	draws       int
	shipped     bool
}{
	{"digits", "class means, digits", 10, true},
	{"mnist", "class means, MNIST", 10, true},
	{"cifar10", "class means, CIFAR-10", 10, true},
	{"cifar100", "class means, CIFAR-100", 10, true},
	{"open", "class means, open scope", 3, false},
	{"moments", "moments, CIFAR-10", 10, false},
}

// readColluders reads a kept run, and takes its row without colluders apart.
func readColluders(t *testing.T, form string, alpha float64, draws int,
	shipped bool) (rows []attack.CollusionRow, none *attack.CollusionRow) {
	t.Helper()
	var kept struct {
		Clients, Repeats int
		Defences         []string
		Colluders        []attack.CollusionRow
	}
	readJSON(t, fmt.Sprintf("colluders/%s-%g.json", form, alpha), &kept)
	rows = kept.Colluders
	if len(rows) > 0 && rows[0].Attack == attack.NoAttack {
		none, rows = &rows[0], rows[1:]
	}
	if kept.Clients != 10 || kept.Repeats != draws || len(kept.Defences) != 3 || len(rows) != 15 ||
		shipped && none == nil {
		t.Fatalf("%s, alpha %g, is of %d clients, %d draws, %v, %d rows", form, alpha, kept.Clients,
			kept.Repeats, kept.Defences, len(rows))
	}
	return rows, none
}

// TestColluders: the tables of colluders are those of the kept runs. Where images are known no
// round falls with up to five colluders of ten, up to four cost .02 at most on average, and honest
// rounds lose no more than .005 by it, and none .01.
func TestColluders(t *testing.T) {
	var b, honest strings.Builder
	b.WriteString("\n")
	heading(&b, "mean loss, rounds that fall: judged; anchored | attack | 1 of 10 | 2 | 3 | 4 | 5")
	honest.WriteString("\n")
	heading(&honest, "honest rounds | >all taken for honest: ACC | >judged | >by the shipped anchor | "+
		">largest loss of a round")
	for _, k := range keptColluders {
		for _, alpha := range []float64{0, 0.5, 0.1} {
			rows, none := readColluders(t, k.form, alpha, k.draws, k.shipped)
			clients := ofAlpha(alpha)
			if k.shipped {
				fmt.Fprintf(&honest, "| %s, %s | %.4f | %.4f | %.4f | %s |\n", k.title,
					clients, none.ACC[0], none.ACC[1], none.ACC[2], short(none.Worst[2]))
				if none.ACC[0]-none.ACC[2] > 0.005 || none.Worst[2] > 0.01 {
					t.Errorf("%s, alpha %g: honest rounds lose %.4f by the anchor, one %.4f",
						k.form, alpha, none.ACC[0]-none.ACC[2], none.Worst[2])
				}
			}
			for i, r := range rows {
				if i%5 == 0 {
					fmt.Fprintf(&b, "| %s, %s | %s |", k.title, clients, r.Attack)
				}
				fmt.Fprintf(&b, " %s, %d; %s, %d |", short(r.Oracle-r.ACC[1]), r.Fallen[1],
					short(r.Oracle-r.ACC[2]), r.Fallen[2])
				if i%5 == 4 {
					b.WriteString("\n")
				}
				if r.Fallen[2] > 0 || r.Colluders <= 4 && r.Oracle-r.ACC[2] > 0.02 {
					t.Errorf("%s, alpha %g, %s, %d colluders: %d of the anchored rounds fall, "+
						"the mean loss is %.3f", k.form, alpha, r.Attack, r.Colluders, r.Fallen[2],
						r.Oracle-r.ACC[2])
				}
			}
		}
	}
	write(t, "byzantine.md", "colluders", b.String()+"\n")
	write(t, "byzantine.md", "honest-rounds", honest.String()+"\n")
}
