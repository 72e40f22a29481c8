package main

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often a command says how far it is. Shorter work says nothing.
const progressEvery = 10 * time.Second

// progress returns a function that says in a log how many images of how many were read, with their
// rate and the time left. now tells the time.
func progress(log io.Writer, now func() time.Time) func(done, total int) {
	start := now()
	last := start
	return func(done, total int) {
		at := now()
		if at.Sub(last) < progressEvery || done < 1 || done >= total {
			return
		}
		last = at
		each := at.Sub(start) / time.Duration(done)
		left := (each * time.Duration(total-done)).Round(time.Second)
		fmt.Fprintf(log, "fmp-edge: images: %d of %d (%d%%), %.3g/s, %v left\n", done, total,
			100*done/total, 1/each.Seconds(), left)
	}
}
