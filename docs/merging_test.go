package docs

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestMerging: the table of the cost of merging is the kept one.
func TestMerging(t *testing.T) {
	data := must.Get(os.ReadFile("results/merging.csv"))(t)
	rows := must.Get(csv.NewReader(strings.NewReader(string(data))).ReadAll())(t)
	var b strings.Builder
	heading(&b, ">clients | >processor seconds | >wall seconds | >part, MB | >pooling, wall "+
		"seconds | >memory, MiB")
	for _, row := range rows[1:] {
		n := must.Get(strconv.Atoi(row[0]))(t)
		row[0] = thousands(int64(n))
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	write(t, "merging.md", "merging", b.String())
}
