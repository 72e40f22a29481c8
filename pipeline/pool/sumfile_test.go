package pool

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
)

// trusted is a round of empty messages whose server adds the noise.
func trusted(digests ...string) *Private {
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Trusted}
	p := &Private{Client: models.Manifest{Clip: 1}, Account: b.Spend(4, len(digests))}
	for _, d := range digests {
		p.Releases = append(p.Releases,
			Release{Digest: d, Release: &federate.Release{Client: d, Budget: b, Sums: privacy.NewRelease(4, 5)}})
	}
	return p
}

// TestOneDraw: the noise of a set of messages is drawn once, under whatever name its sum stands and
// however many pool them at a time; another set has another draw, and takes nobody's place.
func TestOneDraw(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) SumFile {
		return SumFile{Path: filepath.Join(dir, name), Folder: filepath.Join(dir, "fmp")}
	}
	total := func(of Keeper, digests ...string) (string, error) {
		s, err := trusted(digests...).Totals(of, nil)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(s.Sums, s.Counts), nil
	}
	const pools = 12
	got := make([]string, pools)
	var wg sync.WaitGroup
	for i := range pools {
		wg.Go(func() {
			s := must.Get(total(at(fmt.Sprint(i%4)), "a", "b"))(t)
			got[i] = s
		})
	}
	wg.Wait()
	for i, s := range got {
		if s != got[0] {
			t.Errorf("pool %d has another draw than the first", i)
		}
	}
	if s := must.Get(total(at("other"), "c", "d"))(t); s == got[0] {
		t.Error("another set of messages has the sum of the first")
	}
	sums := must.Get(filepath.Glob(filepath.Join(dir, "fmp", "*.json")))(t)
	if len(sums) != 2 {
		t.Errorf("the sums %q; want 2", sums)
	}
	must.Fail(total(at("0"), "a", "b", "c"))(t, "other uploads", "beside the sum of others")
	// Files of before there was a folder, or from elsewhere.
	fresh := SumFile{Path: at("0").Path, Folder: filepath.Join(dir, "elsewhere")}
	if s, err := total(fresh, "a", "b"); err != nil || s != got[0] {
		t.Errorf("in another folder: %v, the same sum %v", err, s == got[0])
	}
	if s, err := total(SumFile{Path: at("again").Path, Folder: fresh.Folder}, "a", "b"); err != nil || s != got[0] {
		t.Errorf("beside another name: %v, the same sum %v", err, s == got[0])
	}
	must.Get(total(SumFile{Path: at("drawn").Path, Folder: filepath.Join(dir, "third")}, "a", "b"))(t)
	must.Fail(total(at("drawn"), "a", "b"))(t, "another draw", "a sum that was drawn elsewhere")
}

// TestRedraw: another sum of messages of which one is kept is refused, or spends their budget again, as
// often as the message that is in most sums.
func TestRedraw(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "old.json"), []byte(`{"inputs": "a"}`), 0o600))
	for i, c := range []struct {
		messages string
		redraw   bool
		draws    int // -1: refused
	}{
		{"abc", false, 0}, {"abc", false, 0}, {"def", false, 0},
		{"ab", false, -1}, {"ab", true, 2}, {"ab", false, 2}, {"cd", true, 2},
		{"bc", true, 3}, {"ag", false, -1}, {"g", false, 0},
	} {
		p := trusted(strings.Split(c.messages, "")...)
		once := p.Account
		f := SumFile{filepath.Join(dir, fmt.Sprint(i)), dir, c.redraw}
		_, err := p.Totals(f, nil)
		if c.draws < 0 {
			if err == nil || !strings.Contains(err.Error(), "--redraw") {
				t.Errorf("%d, %s: %v", i, c.messages, err)
			}
			continue
		}
		want := once.Epsilon
		if c.draws > 1 {
			want = privacy.Epsilon(once.Sigma/math.Sqrt(float64(c.draws)), once.Delta)
		}
		if err != nil || p.Account.Draws != c.draws || p.Account.Epsilon < want ||
			p.Account.Epsilon > want+1e-4 || p.Account.Variance() != once.Variance() {
			t.Errorf("%d, %s: %v, %+v; want %d draws of %v", i, c.messages, err, p.Account, c.draws, want)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600))
	must.Fail(trusted("z").Totals(SumFile{filepath.Join(dir, "z"), dir, true}, nil))(
		t, "", "a damaged sum of unknown messages is passed over")
}

// TestSaltedCopy: noise that was drawn for a message of an earlier program is drawn again for its copy with
// a salt by --redraw alone. The digest without the salt stands in no file.
func TestSaltedCopy(t *testing.T) {
	for _, c := range []struct {
		before, redraw bool // before: it was pooled without a salt
		draws          int  // -1: refused
	}{{false, false, 0}, {true, false, -1}, {true, true, 2}} {
		p := trusted("a")
		r := &p.Releases[0]
		r.Model = strings.Repeat("ab", 32)
		bare := models.DigestBytes(must.Get(r.Encode())(t))
		f := SumFile{filepath.Join(t.TempDir(), "one"), t.TempDir(), c.redraw}
		if c.before {
			r.Digest = bare
			must.Get(p.Totals(f, nil))(t)
		}
		f.Path += ".salted"
		p = trusted("salted")
		copied := *r.Release
		copied.Salt[0] = 1
		p.Releases[0].Release = &copied
		if _, err := p.Totals(f, nil); (err != nil) != (c.draws < 0) || err == nil && p.Account.Draws != c.draws {
			t.Errorf("%+v: %d draws, %v", c, p.Account.Draws, err)
		}
		if data, _ := os.ReadFile(f.Path); strings.Contains(string(data), bare) {
			t.Errorf("%+v: the sum tells the digest without the salt", c)
		}
	}
}

// TestDamagedSum: a sum that is not whole is not drawn anew, and one that cannot be stored is given
// to nobody.
func TestDamagedSum(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f SumFile, kept string)
		says  string
	}{
		"the file is shortened": {func(t *testing.T, f SumFile, _ string) {
			must.Do(t, os.WriteFile(f.Path, []byte("{"), 0o600))
		}, "is not the noisy sum"},
		"the machine's is shortened": {func(t *testing.T, f SumFile, kept string) {
			must.Do(t, os.WriteFile(kept, []byte("{"), 0o600))
		}, "is damaged, and the noise of these uploads was drawn"},
		"the file's place is a folder": {func(t *testing.T, f SumFile, _ string) {
			must.Do(t, os.Remove(f.Path))
			must.Do(t, os.Mkdir(f.Path, 0o700))
		}, "sum"},
	} {
		dir := t.TempDir()
		f := SumFile{Path: filepath.Join(dir, "sum"), Folder: filepath.Join(dir, "fmp")}
		must.Get(trusted("a").Totals(f, nil))(t)
		c.spoil(t, f, must.Get(filepath.Glob(filepath.Join(f.Folder, "*.json")))(t)[0])
		must.Fail(trusted("a").Totals(f, nil))(t, c.says, name)
	}
	f := SumFile{Path: filepath.Join(t.TempDir(), "sum"), Folder: filepath.Join(t.TempDir(), "fmp")}
	gone := errors.New("no noise")
	if _, err := f.Keep("none", nil, func(int) ([]byte, error) { return nil, gone }); !errors.Is(err, gone) {
		t.Errorf("no draw: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Folder, "*.json")); len(left) > 0 {
		t.Errorf("a draw that failed left %q", left)
	}
}
