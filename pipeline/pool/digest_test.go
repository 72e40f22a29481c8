package pool

import (
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/option"
)

// TestDigest: options have one digest where they make one classifier, and files count by their
// contents.
func TestDigest(t *testing.T) {
	corpus := filepath.Join(t.TempDir(), "corpus")
	of := func(change func(*Options)) string {
		o := option.Default[Options]()
		change(&o)
		return must.Get(o.Digest())(t)
	}
	write := func(text string) { must.Do(t, os.WriteFile(corpus, []byte(text), 0o600)) }
	none := of(func(*Options) {})
	for name, c := range map[string]struct {
		change func(*Options)
		same   bool
	}{
		"threads":         {func(o *Options) { o.Threads = 7 }, true},
		"no false share":  {func(o *Options) { o.Sets.FalseShare = nil }, true},
		"samples":         {func(o *Options) { o.Samples = 20 }, false},
		"trust":           {func(o *Options) { o.Trust = true }, false},
		"no sets":         {func(o *Options) { o.Sets.Level = -1 }, false},
		"another default": {func(o *Options) { o.Scope = "open" }, false},
	} {
		if got := of(c.change); (got == none) != c.same {
			t.Errorf("%s: the same digest is %v; want %v", name, got == none, c.same)
		}
	}
	write("a")
	a := of(func(o *Options) { o.Corpus = corpus })
	write("b")
	if b := of(func(o *Options) { o.Corpus = corpus }); a == b || a == none {
		t.Error("the contents of the corpus do not count")
	}
	must.Do(t, os.Remove(corpus))
	o := Options{Corpus: corpus}
	must.Fail(o.Digest())(t, "corpus", "a corpus that is away")
}
