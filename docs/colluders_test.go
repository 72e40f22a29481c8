package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/pipeline/lab/attack"
)

// keptColluders are the runs of fmp bench round --colluders in results/colluders (colluders.sh).
var keptColluders = []struct {
	form, title string
	draws       int
}{
	{"cifar10", "class means, CIFAR-10", 10},
	{"open", "class means, open scope", 3},
	{"moments", "moments, CIFAR-10", 10},
}

// TestColluders: the table of colluders is that of the kept runs. Where images are known no round falls with up to four colluders of ten,
// and none loses more than .02.
func TestColluders(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| mean loss, rounds that fall: judged; anchored | attack | 1 of 10 | 2 | 3 | 4 | 5 |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, k := range keptColluders {
		for _, alpha := range []string{"0", "0.5", "0.1"} {
			data, err := os.ReadFile(filepath.Join("results/colluders", k.form+"-"+alpha+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var kept struct {
				Clients, Repeats int
				Defences         []string
				Colluders        []attack.CollusionRow
			}
			if err := json.Unmarshal(data, &kept); err != nil {
				t.Fatal(err)
			}
			if kept.Clients != 10 || kept.Repeats != k.draws || len(kept.Defences) != 3 || len(kept.Colluders) != 15 {
				t.Fatalf("%s, alpha %s, is of %d clients, %d draws, %v, %d rows", k.form, alpha, kept.Clients, kept.Repeats, kept.Defences,
					len(kept.Colluders))
			}
			clients := "homogeneous"
			if alpha != "0" {
				clients = "α = " + alpha
			}
			for i, r := range kept.Colluders {
				if i%5 == 0 {
					fmt.Fprintf(&b, "| %s, %s | %s |", k.title, clients, r.Attack)
				}
				fmt.Fprintf(&b, " %s, %d; %s, %d |", short(r.Oracle-r.ACC[1]), r.Fallen[1], short(r.Oracle-r.ACC[2]), r.Fallen[2])
				if i%5 == 4 {
					b.WriteString("\n")
				}
				if r.Colluders <= 4 && (r.Fallen[2] > 0 || r.Worst[2] > 0.02) {
					t.Errorf("%s, alpha %s, %s, %d colluders: %d of the anchored rounds fall, the largest loss is %.3f", k.form, alpha, r.Attack,
						r.Colluders, r.Fallen[2], r.Worst[2])
				}
			}
		}
	}
	write(t, "federate.md", "colluders", b.String()+"\n")
}
