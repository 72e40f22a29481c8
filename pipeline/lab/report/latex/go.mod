// Gonum's plots link a renderer of mathematical formulas with four fonts, 0.6 MB. No plot here has a formula: go.work puts this in its place,
// with the names that gonum's package text uses.
module codeberg.org/go-latex/latex

go 1.26.8

require golang.org/x/image v0.47.0

require golang.org/x/text v0.43.0 // indirect
