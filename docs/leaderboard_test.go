package docs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/report"
)

// leaderboardRuns are the kept runs of the leaderboard, with what is said of each.
var leaderboardRuns = [][3]string{
	{"pretrained", "cifar10-20", "CIFAR-10, ten clients of 20 images"},
	{"pretrained", "cifar100-20", "20 classes of CIFAR-100, ten clients of 20 images"},
	{"pretrained", "cifar10-2900", "CIFAR-10, ten clients that hold all images at hand"},
	{"pretrained", "cifar100-190-published",
		"20 classes of CIFAR-100, 50 clients that hold all images at hand: the clients and α of FedPFT " +
			"in Flower's baselines"},
	{"published", "cifar10-fedcgs", "CIFAR-10, 30 clients that hold all images at hand: the clients " +
		"and an α of FedCGS's own script"},
	{"published", "cifar10-fedcgs-0.05", "The same at that script's α of .05"},
	{"published", "cifar10-fedcgs-0.5", "The same at that script's α of .5"},
	{"published", "cifar100-fedcgs", "60 classes of CIFAR-100, 30 clients that hold all images at " +
		"hand: the clients and an α of FedCGS's own script"},
}

// TestLeaderboard: the rows are those of the kept runs, methods from outside among them. With
// -update they are written (make docs).
func TestLeaderboard(t *testing.T) {
	var b strings.Builder
	for _, of := range leaderboardRuns {
		k := readKept(t, of[0], of[1])
		all := must.Get(report.Tables(k.records, k.manifest))(t)
		few := must.Get(report.Choose(all, []string{"ACC", "ECE", "NLL", "joint NLL", "upload"}, nil))(t)
		var tables bytes.Buffer
		must.Do(t, report.Markdown(&tables, few))
		fmt.Fprintf(&b, "### %s\n\nRun `docs/results/pretrained.sh %s`.\n\n%s\n", of[2], of[1],
			strings.ReplaceAll(tables.String(), "### ", "#### "))
	}
	write(t, "results/leaderboard.md", "leaderboard", b.String())
}
