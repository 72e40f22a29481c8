package digits

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"testing"

	"codeberg.org/go-fonts/dejavu/dejavusans"
	"codeberg.org/go-fonts/dejavu/dejavusansbold"
	"codeberg.org/go-fonts/dejavu/dejavusansextralight"
	"codeberg.org/go-fonts/dejavu/dejavusansmono"
	"codeberg.org/go-fonts/dejavu/dejavusansmonooblique"
	"codeberg.org/go-fonts/dejavu/dejavuserif"
	"codeberg.org/go-fonts/dejavu/dejavuserifbold"
	"codeberg.org/go-fonts/dejavu/dejavuserifitalic"
	"codeberg.org/go-fonts/latin-modern/lmmono10italic"
	"codeberg.org/go-fonts/latin-modern/lmmono10regular"
	"codeberg.org/go-fonts/latin-modern/lmmonolt10bold"
	"codeberg.org/go-fonts/latin-modern/lmroman10bold"
	"codeberg.org/go-fonts/latin-modern/lmroman10italic"
	"codeberg.org/go-fonts/latin-modern/lmroman10regular"
	"codeberg.org/go-fonts/latin-modern/lmromandunh10regular"
	"codeberg.org/go-fonts/latin-modern/lmsans10bold"
	"codeberg.org/go-fonts/latin-modern/lmsans10oblique"
	"codeberg.org/go-fonts/latin-modern/lmsans10regular"
	"codeberg.org/go-fonts/latin-modern/lmsansdemicond10regular"
	"codeberg.org/go-fonts/latin-modern/lmsansquot8regular"
	"github.com/go-fonts/liberation/liberationmonobold"
	"github.com/go-fonts/liberation/liberationmonoitalic"
	"github.com/go-fonts/liberation/liberationmonoregular"
	"github.com/go-fonts/liberation/liberationsansbold"
	"github.com/go-fonts/liberation/liberationsansbolditalic"
	"github.com/go-fonts/liberation/liberationsansitalic"
	"github.com/go-fonts/liberation/liberationsansregular"
	"github.com/go-fonts/liberation/liberationserifbold"
	"github.com/go-fonts/liberation/liberationserifbolditalic"
	"github.com/go-fonts/liberation/liberationserifitalic"
	"github.com/go-fonts/liberation/liberationserifregular"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"

	"fmp/onnx/must"
)

var update = flag.Bool("update", false, "write outlines.txt.gz anew from the fonts")

type fontFile struct {
	typeface, style string
	data            []byte
}

var (
	trainFonts = []fontFile{
		{"Go", "regular", goregular.TTF}, {"Go", "bold", gobold.TTF},
		{"Go", "italic", goitalic.TTF}, {"Go", "bold italic", gobolditalic.TTF},
		{"Go Mono", "regular", gomono.TTF}, {"Go Mono", "bold", gomonobold.TTF},
		{"Liberation Sans", "regular", liberationsansregular.TTF},
		{"Liberation Sans", "bold", liberationsansbold.TTF},
		{"Liberation Sans", "italic", liberationsansitalic.TTF},
		{"Liberation Sans", "bold italic", liberationsansbolditalic.TTF},
		{"Liberation Serif", "regular", liberationserifregular.TTF},
		{"Liberation Serif", "bold", liberationserifbold.TTF},
		{"Liberation Serif", "italic", liberationserifitalic.TTF},
		{"Liberation Serif", "bold italic", liberationserifbolditalic.TTF},
		{"Latin Modern Roman", "regular", lmroman10regular.TTF},
		{"Latin Modern Roman", "bold", lmroman10bold.TTF},
		{"Latin Modern Roman", "italic", lmroman10italic.TTF},
		{"Latin Modern Roman", "Dunhill", lmromandunh10regular.TTF},
		{"Latin Modern Mono", "regular", lmmono10regular.TTF},
		{"Latin Modern Mono", "italic", lmmono10italic.TTF},
		{"Latin Modern Mono", "bold", lmmonolt10bold.TTF},
		{"DejaVu Sans Mono", "regular", dejavusansmono.TTF},
		{"DejaVu Sans Mono", "oblique", dejavusansmonooblique.TTF},
	}
	testFonts = []fontFile{
		{"DejaVu Sans", "regular", dejavusans.TTF}, {"DejaVu Sans", "bold", dejavusansbold.TTF},
		{"DejaVu Sans", "extra light", dejavusansextralight.TTF},
		{"DejaVu Serif", "regular", dejavuserif.TTF}, {"DejaVu Serif", "bold", dejavuserifbold.TTF},
		{"DejaVu Serif", "italic", dejavuserifitalic.TTF},
		{"Liberation Mono", "regular", liberationmonoregular.TTF},
		{"Liberation Mono", "bold", liberationmonobold.TTF},
		{"Liberation Mono", "italic", liberationmonoitalic.TTF},
		{"Latin Modern Sans", "regular", lmsans10regular.TTF},
		{"Latin Modern Sans", "bold", lmsans10bold.TTF},
		{"Latin Modern Sans", "oblique", lmsans10oblique.TTF},
		{"Latin Modern Sans", "demi condensed", lmsansdemicond10regular.TTF},
		{"Latin Modern Sans", "quotation", lmsansquot8regular.TTF},
	}
)

// TestOutlinesAreThoseOfTheFonts: outlines.txt.gz is what the fonts say today (go test
// ./featurize/digits -run Outlines -update).
func TestOutlinesAreThoseOfTheFonts(t *testing.T) {
	var want bytes.Buffer
	for _, split := range []struct {
		name  string
		fonts []fontFile
	}{{"train", trainFonts}, {"test", testFonts}} {
		for _, f := range split.fonts {
			fmt.Fprintf(&want, "%s, %s, %s\n", split.name, f.typeface, f.style)
			for d := range 10 {
				segments, err := load(f.data, rune('0'+d))
				if err != nil {
					t.Fatalf("digit %d of %s %s: %v", d, f.typeface, f.style, err)
				}
				writePath(&want, segments)
			}
		}
	}
	if *update {
		var to bytes.Buffer
		w, _ := gzip.NewWriterLevel(&to, gzip.BestCompression)
		w.Write(want.Bytes())
		w.Close()
		must.Do(t, os.WriteFile("outlines.txt.gz", to.Bytes(), 0o644))
		return
	}
	if text, err := outlines(); err != nil || want.String() != text {
		t.Error("outlines.txt.gz is not what the fonts say: go test ./featurize/digits -run " +
			"Outlines -update")
	}
}

func load(ttf []byte, r rune) (sfnt.Segments, error) {
	f, err := sfnt.Parse(ttf)
	if err != nil {
		return nil, err
	}
	var buf sfnt.Buffer
	g, err := f.GlyphIndex(&buf, r)
	if err != nil {
		return nil, err
	}
	if g == 0 {
		return nil, fmt.Errorf("the font has no such character")
	}
	return f.LoadGlyph(&buf, g, fixed.I(256), nil)
}

// writePath writes a line as parsePath reads it.
func writePath(w *bytes.Buffer, segments sfnt.Segments) {
	for i, s := range segments {
		if i > 0 {
			w.WriteByte(' ')
		}
		c := commands[s.Op]
		w.WriteByte(c.letter)
		for _, p := range s.Args[:c.points] {
			fmt.Fprintf(w, " %d %d", p.X, p.Y)
		}
	}
	w.WriteByte('\n')
}
