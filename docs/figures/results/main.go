// The program results draws the figures of kept results:
//
//	go run ./docs/figures/results latent docs/results docs/results/latent.svg
//	go run ./docs/figures/results rounds docs/results docs/results/pretrained.svg
//	go run ./docs/figures/results drift docs/results/martingale docs/results/martingale.svg
//	go run ./docs/figures/results merging docs/results/merging.csv docs/figures/merging.svg
package main

import (
	"fmt"

	"fmp/docs/internal/panels"
)

// figures draw results to a file.
var figures = map[string]func(from, path string) error{"latent": latent, "rounds": rounds,
	"drift": drift, "merging": merging}

func main() {
	panels.Main("results FIGURE RESULTS FILE.svg", func(a []string) error {
		draw := figures[a[0]]
		if draw == nil {
			return fmt.Errorf("figure %q; there are latent, rounds, drift and merging", a[0])
		}
		return draw(a[1], a[2])
	})
}
