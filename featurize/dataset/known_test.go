package dataset

import (
	"strings"
	"testing"

	"fmp/onnx/must"
)

func TestKnownIsComplete(t *testing.T) {
	for _, s := range All() {
		if (s.Kind == "") != (len(s.Folders) == 0) || s.Kind == "" && s.Files != nil {
			t.Errorf("%+v", s)
		}
		for _, f := range s.Files {
			if len(f.MD5) != 32 || len(f.SHA256) != 64 || len(f.URLs) == 0 || f.Max <= 0 {
				t.Errorf("%s: %+v", s.Name, f)
			}
			for _, u := range f.URLs {
				if !strings.HasPrefix(u, "https://") {
					t.Errorf("%s: %s is not https", s.Name, u)
				}
			}
		}
	}
	must.Fail(LookupPublished("nothing"))(t, "mnist")
}
