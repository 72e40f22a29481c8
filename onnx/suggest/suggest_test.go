package suggest

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"json", "dataset.name", "dataset.dir", "erm.l2", "FMP", "MP", "CANN"}
	for in, want := range map[string]string{
		"jsno": "json", "dataset.nmae": "dataset.name", "erm.12": "erm.l2", "FPM": "FMP", "fmp": "FMP",
		"cnan": "CANN", "zzz": "", "": "",
		"x": "",
	} {
		if got := Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
	if got := DidYouMean("jsno", names); got != "; did you mean json?" {
		t.Errorf("DidYouMean gives %q", got)
	}
	if got := DidYouMean("zzz", names); got != "" {
		t.Errorf("DidYouMean of something else gives %q", got)
	}
}

func TestOr(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"},
		"a, b or c": {"a", "b", "c"}} {
		if got := Or(names...); got != want {
			t.Errorf("%v: %q; want %q", names, got, want)
		}
	}
}
