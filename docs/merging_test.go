package docs

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestMerging: the table of the cost of merging is the kept one.
func TestMerging(t *testing.T) {
	data, err := os.ReadFile("results/merging.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| clients | processor seconds | wall seconds | part, MB | pooling, wall seconds " +
		"| memory, MiB |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		row[0] = thousands(int64(n))
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	write(t, "merging.md", "merging", b.String())
}
