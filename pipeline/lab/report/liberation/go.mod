// Gonum's plots load all twelve Liberation fonts, 4.4 MB, by this name. Plots here are set in Sans alone: go.work puts this in their place,
// and every face is Sans.
module codeberg.org/go-fonts/liberation

go 1.26.8

require github.com/go-fonts/liberation v0.3.3
