package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// printEffects names the clients whose images are shifted against the others', the furthest first.
func (p *pooled) printEffects(b *strings.Builder) {
	var shifted []int
	for m, size := range p.Effects {
		if size > 0 {
			shifted = append(shifted, m)
		}
	}
	if len(shifted) == 0 {
		return
	}
	slices.SortStableFunc(shifted,
		func(a, b int) int { return cmp.Compare(p.Effects[b], p.Effects[a]) })
	var names []string
	for _, m := range shifted[:min(len(shifted), maxClients)] {
		names = append(names, fmt.Sprintf("%s (%.1f)", p.Clients[m], p.Effects[m]))
	}
	if more := len(shifted) - maxClients; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	fmt.Fprintf(b, "cameras:    %d of %d clients differ from the others in all classes alike, by so "+
		"many standard deviations: %s\n", len(shifted), len(p.Clients), strings.Join(names, ", "))
}
