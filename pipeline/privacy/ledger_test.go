package privacy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// usual is the budget of most tests.
var usual = Budget{Epsilon: 1, Delta: 1e-5, Unit: Example, Relation: AddRemove, Noise: Local}

// spending is a release of images that are named by numbers.
func spending(b Budget, round uint64, images ...int) Spending {
	var digests [][sha256.Size]byte
	for _, i := range images {
		digests = append(digests, sha256.Sum256(fmt.Append(nil, i)))
	}
	s := NewSpending(b, 10, 9, digests, make([]int, len(images)))
	s.Client, s.Round = "ward", round
	return s
}

// holding is a ledger of n releases of one image.
func holding(t *testing.T, n uint64) Ledger {
	t.Helper()
	l := Ledger{Path: filepath.Join(t.TempDir(), "spent.jsonl")}
	for round := range n {
		must.Get2(l.Spend(spending(usual, round, 1), 0, false))(t)
	}
	return l
}

// TestTotal: what was spent on the image, or the client, that spent most.
func TestTotal(t *testing.T) {
	t.Parallel()
	four, replace, client := usual, usual, usual
	four.Epsilon = 4
	replace.Relation = ReplaceOne
	client.Unit, client.Points = Client, 5
	sigma := func(b Budget) float64 { return float64(b.NoiseSteps(10)) / b.Sensitivity(10) }
	one := Epsilon(sigma(usual), usual.Delta)
	times := func(k float64) float64 { return Epsilon(sigma(usual)/math.Sqrt(k), usual.Delta) }
	other := spending(usual, 1, 1, 2)
	other.Client = "another key of the same owner"
	otherClient := spending(client, 1, 1)
	otherClient.Client = "another"
	for name, c := range map[string]struct {
		past    []Spending
		next    Spending
		want    float64
		earlier int
	}{
		"the first": {nil, spending(usual, 1, 1, 2), one, 0},
		"the same images twice": {[]Spending{spending(usual, 1, 1, 2)},
			spending(usual, 2, 1, 2), times(2), 1},
		"other images": {[]Spending{spending(usual, 1, 1, 2)}, spending(usual, 2, 3, 4), one, 0},
		"one image in three folders": {[]Spending{spending(usual, 1, 1, 2), spending(usual, 2, 2, 3)},
			spending(usual, 3, 2, 4), times(3), 2},
		"spent on images not in this": {[]Spending{spending(usual, 1, 1, 2), spending(usual, 2, 1, 3),
			spending(usual, 3, 1, 4)}, spending(usual, 4, 2, 5), times(2), 1},
		"by another key":             {[]Spending{other}, spending(usual, 1, 1), times(2), 1},
		"an image twice in a folder": {nil, spending(usual, 1, 1, 1), times(4), 0},
		"two budgets": {[]Spending{spending(four, 1, 1)}, spending(usual, 2, 1),
			Epsilon(1/math.Hypot(1/sigma(usual), 1/sigma(four)), usual.Delta), 1},
		"a replacement, after additions": {[]Spending{spending(usual, 1, 1)}, spending(replace, 2, 1),
			Epsilon(1/math.Hypot(1/sigma(replace), 2*Steps/float64(usual.NoiseSteps(10))), usual.Delta), 1},
		"a client twice": {[]Spending{spending(client, 1, 1, 2)}, spending(client, 2, 3, 4),
			Epsilon(sigma(client)/math.Sqrt2, usual.Delta), 1},
		"a client's message with a salt": {[]Spending{spending(client, 1, 1), spending(client, 1)},
			spending(client, 2, 3), Epsilon(sigma(client)/math.Sqrt2, usual.Delta), 1},
		"a client's salt": {[]Spending{spending(client, 1, 1)}, spending(client, 1), Epsilon(sigma(client), usual.Delta), 1},
		"a salt":          {[]Spending{spending(usual, 1, 1)}, spending(usual, 1), 0, 0},
		"another client": {[]Spending{otherClient}, spending(client, 1, 1),
			Epsilon(sigma(client), usual.Delta), 0},
	} {
		got, earlier := Total(c.past, c.next)
		if math.Abs(got-c.want) > 1e-9 || earlier != c.earlier {
			t.Errorf("%s: epsilon %v over %d earlier; want %v over %d", name, got, earlier,
				c.want, c.earlier)
		}
	}
}

// TestCopiesOfBefore: a release of an earlier program, which listed copies, is found by its images; one
// without copies by its content alone.
func TestCopiesOfBefore(t *testing.T) {
	for name, c := range map[string]struct {
		was  []int
		same bool
	}{
		"the same":              {[]int{2, 1}, true},
		"copies of one":         {[]int{1, 2, 1}, true},
		"copies of all":         {[]int{1, 1, 2, 2, 2}, true},
		"another":               {[]int{1, 3}, false},
		"copies, and one more":  {[]int{1, 1, 2, 3}, false},
		"copies, and one fewer": {[]int{1, 1}, false},
	} {
		l := holding(t, 0)
		must.Get2(l.Spend(spending(usual, 1, c.was...), 0, false))(t)
		found := must.Get(l.Find(spending(usual, 1, 1, 2)))(t)
		if _, _, err := l.Spend(spending(usual, 1, 1, 2), 0, false); (found != nil) != c.same || (err != nil) != c.same {
			t.Errorf("%s: found %v, spent again: %v", name, found, err)
		}
	}
	turned := spending(usual, 1, 1, 2)
	turned.Content = "of other labels"
	if turned.same(spending(usual, 1, 1, 2)) {
		t.Error("the same images under other labels are the same release")
	}
	stray := usual
	stray.Points = 9
	if !spending(usual, 1, 1, 2).same(spending(stray, 1, 1, 2)) {
		t.Error("with points that have no effect it is another release")
	}
}

// TestTotalGrows: whatever was released before, in any order, more of it never makes the total
// less, nor is it less than the release's own epsilon.
func TestTotalGrows(t *testing.T) {
	t.Parallel()
	r := rng.New(1, "ledger")
	for range 200 {
		draw := func() Spending {
			b := Budget{Epsilon: []float64{0.5, 1, 4}[r.IntN(3)], Delta: 1e-5, Unit: Units[r.IntN(2)],
				Relation: Relations[r.IntN(2)], Noise: Local, Points: 1 + r.IntN(20)}
			var images []int
			for range 1 + r.IntN(6) {
				images = append(images, r.IntN(8))
			}
			return spending(b, r.Uint64(), images...)
		}
		var past []Spending
		next := draw()
		last := 0.0
		for range 5 {
			total, _ := Total(past, next)
			if total < last-1e-9 || len(past) == 0 && total < next.Budget.Epsilon*0.99 {
				t.Fatalf("epsilon %v after %d releases, %v before; the release's own is %v",
					total, len(past), last, next.Budget.Epsilon)
			}
			turned := slices.Clone(past)
			slices.Reverse(turned)
			if again, _ := Total(turned, next); math.Abs(again-total) > 1e-9 {
				t.Fatalf("epsilon %v, and %v in another order", total, again)
			}
			last, past = total, append(past, draw())
		}
	}
}

// TestAveraging: over any number of releases of the same sums the mean of what was released tells
// of an image what the total says, and no more: the noise of the mean has the delta of the total.
func TestAveraging(t *testing.T) {
	t.Parallel()
	var past []Spending
	for k := 1; k <= 100; k++ {
		next := spending(usual, uint64(k), 1)
		total, _ := Total(past, next)
		sigma := float64(usual.NoiseSteps(10)) / math.Sqrt(float64(k)) / usual.Sensitivity(10)
		if d := Delta(total, sigma); d > usual.Delta*(1+1e-6) || d < usual.Delta*(1-1e-3) {
			t.Fatalf("the mean of %d releases has delta %v at the total's epsilon %v", k, d, total)
		}
		past = append(past, next)
	}
}

// TestLedger: a release beyond the limit is refused and not written, the same one is found, and
// processes at the same time do not exceed the limit together.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := Ledger{Path: filepath.Join(t.TempDir(), "fmp", "spent.jsonl")}
	if s, err := l.Find(spending(usual, 1, 1)); s != nil || err != nil {
		t.Fatal(s, err)
	}
	const limit = 2.5 // five releases
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for i := range 12 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, _, err := l.Spend(spending(usual, uint64(i), 1, 2), limit, false)
			var spent *SpentError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case errors.As(err, &spent) && spent.Total > limit &&
				strings.Contains(err.Error(), "--max-epsilon"):
				refused++
			default:
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	most := 1
	for ; Epsilon(float64(usual.NoiseSteps(10))/usual.Sensitivity(10)/math.Sqrt(float64(most+1)),
		usual.Delta) <= limit; most++ {
	}
	data, err := os.ReadFile(l.Path)
	if err != nil || made != most || refused != 12-most || bytes.Count(data, []byte("\n")) != made {
		t.Errorf("%d releases made, %d refused, %d lines, %v; want %d", made, refused,
			bytes.Count(data, []byte("\n")), err, most)
	}
	if st, _ := os.Stat(l.Path); st.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v", st.Mode())
	}
	s := spending(usual, 77, 5)
	must.Get2(l.Spend(s, 0, false))(t)
	if found, err := l.Find(spending(usual, 77, 5)); err != nil || found == nil || found.Round != 77 {
		t.Errorf("found %v, %v", found, err)
	}
	dearer := usual
	dearer.Epsilon = 2
	for name, other := range map[string]Spending{"round": spending(usual, 78, 5),
		"images": spending(usual, 77, 5, 6), "budget": spending(dearer, 77, 5)} {
		if found, err := l.Find(other); err != nil || found != nil {
			t.Errorf("another %s: found %v, %v", name, found, err)
		}
	}
	if _, _, err := l.Spend(s, 0, false); err == nil {
		t.Error("the same release was made twice")
	}
	if total, earlier, err := l.Spend(s, 0, true); err != nil || earlier != 1 || total < 1.4 {
		t.Errorf("drawn again: epsilon %v over %d, %v", total, earlier, err)
	}
	for _, bad := range []string{"{}\n", "nonsense\n",
		`{"noise_steps":5,"classes":1,"coordinates":1,"budget":{"epsilon":99}}` + "\n"} {
		must.Do(t, os.WriteFile(l.Path, append(bytes.Clone(data), bad...), 0o600))
		if _, _, err := l.Spend(spending(usual, 99, 1), 0, false); err == nil ||
			!strings.Contains(err.Error(), "cannot be told") &&
				!strings.Contains(err.Error(), "does not follow") {
			t.Errorf("a ledger with the line %q: %v", bad, err)
		}
	}
}

// FuzzLedger: a ledger's lines are an error, or releases that can be written and read again and of
// which a total can be taken.
func FuzzLedger(f *testing.F) {
	b := Budget{Epsilon: 1, Delta: 1e-5, Unit: Client, Relation: ReplaceOne,
		Noise: TwoServers, Points: 3}
	for _, s := range []Spending{spending(b, 1, 1, 2), spending(usual, 2, 2, 2)} {
		f.Add(append(must.Get(json.Marshal(s))(f), '\n'))
	}
	f.Add([]byte("{}\n\nnull\n"))
	f.Fuzz(func(t *testing.T, lines []byte) {
		past, err := parseLedger(lines)
		if err != nil {
			return
		}
		next := spending(b, 9, 1, 2)
		if total, _ := Total(past, next); math.IsNaN(total) || total < 0.9 {
			t.Fatalf("epsilon %v", total)
		}
		var again []byte
		for _, s := range past {
			again = append(append(again, must.Get(json.Marshal(s))(t)...), '\n')
		}
		if back, err := parseLedger(again); err != nil || len(back) != len(past) {
			t.Fatalf("%d releases came back as %d, %v", len(past), len(back), err)
		}
	})
}

// TestFindLast: of releases that were drawn again the last one is found, and all of them in order.
func TestFindLast(t *testing.T) {
	l := Ledger{Path: filepath.Join(t.TempDir(), "spent")}
	for i, path := range []string{"first", "other", "last"} {
		s := spending(usual, 1+uint64(i%2), 1)
		s.Files = []Written{{Path: path}}
		must.Get2(l.Spend(s, 0, true))(t)
	}
	if found := must.Get(l.Find(spending(usual, 1, 1)))(t); found == nil || found.Files[0].Path != "last" {
		t.Errorf("found %v; want the last", found)
	}
	all := must.Get(l.FindAll(spending(usual, 1, 1)))(t)
	if len(all) != 2 || all[0].Files[0].Path != "first" || all[1].Files[0].Path != "last" {
		t.Errorf("found %v; want the first and the last", all)
	}
}

// TestTornLedger: a ledger whose last release is cut off anywhere forgets none: it is whole with
// its end added, or nothing is spent.
func TestTornLedger(t *testing.T) {
	t.Parallel()
	l := holding(t, 2)
	whole := must.Get(os.ReadFile(l.Path))(t)
	seal := must.Get(os.ReadFile(l.Path + SealSuffix))(t)
	first := bytes.IndexByte(whole, '\n') + 1
	for n := first + 1; n <= len(whole); n++ {
		for path, data := range map[string][]byte{l.Path: whole[:n], l.Path + SealSuffix: seal} {
			must.Do(t, os.WriteFile(path, data, 0o600))
		}
		_, earlier, err := l.Spend(spending(usual, 9, 1), 0, false)
		if n < len(whole)-1 && err == nil || n >= len(whole)-1 && (err != nil || earlier != 2) {
			t.Fatalf("cut after %d of %d bytes: %d earlier releases, %v", n, len(whole), earlier, err)
		}
	}
}

// TestSealNotWritten: a release that the seal cannot count is not in the ledger, and nothing is
// changed; it is made once the seal can be written. A line that was not counted, as its
// program was stopped, is counted by the next command: taking it away afterwards is seen.
func TestSealNotWritten(t *testing.T) {
	t.Parallel()
	l := holding(t, 2)
	var counts chain
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(l.Path+SealSuffix))(t), &counts))
	if counts.Lines != 2 {
		t.Errorf("after two releases the seal counts %d", counts.Lines)
	}
	// A path that is too long for the temporary file of a seal, and for nothing else: the system allows
	// 4,095 bytes.
	dir := filepath.Dir(l.Path)
	for len(dir) < 4040 {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, 4040-len(dir))))
	}
	must.Do(t, os.MkdirAll(dir, 0o700))
	long := Ledger{Path: filepath.Join(dir, strings.Repeat("n", 4094-len(dir)-len(SealSuffix)))}
	move := func(from, to Ledger) {
		t.Helper()
		for _, suffix := range []string{"", SealSuffix} {
			must.Do(t, os.Rename(from.Path+suffix, to.Path+suffix))
		}
	}
	read := func(of Ledger) string {
		t.Helper()
		return string(must.Get(os.ReadFile(of.Path))(t)) + string(must.Get(os.ReadFile(of.Path+SealSuffix))(t))
	}
	before := read(l)
	move(l, long)
	if _, _, err := long.Spend(spending(usual, 2, 1), 0, false); err == nil || !strings.Contains(err.Error(), SealSuffix) {
		t.Fatalf("a release that no seal counts: %v", err)
	}
	if after := read(long); after != before {
		t.Errorf("the ledger and its seal are\n%s\nwant\n%s", after, before)
	}
	move(long, l)
	if _, earlier, err := l.Spend(spending(usual, 2, 1), 0, false); err != nil || earlier != 2 {
		t.Fatalf("the same once there is room: %d earlier releases, %v", earlier, err)
	}
	lines, seal := must.Get(os.ReadFile(l.Path))(t), must.Get(os.ReadFile(l.Path+SealSuffix))(t)
	must.Get2(l.Spend(spending(usual, 3, 1), 0, false))(t)
	must.Do(t, os.WriteFile(l.Path+SealSuffix, seal, 0o600)) // stopped between line and seal
	if found, err := l.Find(spending(usual, 3, 1)); err != nil || found == nil {
		t.Fatalf("a line that was not counted: %v, %v", found, err)
	}
	must.Do(t, os.WriteFile(l.Path, lines, 0o600))
	if _, _, err := l.Spend(spending(usual, 4, 1), 0, false); err == nil || !strings.Contains(err.Error(), "are gone") {
		t.Errorf("the line was taken away: %v", err)
	}
}

// TestEditedLedger: whatever is changed in a ledger, taken out of it or put into it is seen by the
// next release, and so is a seal that is of another ledger; a ledger from before there was a seal
// gets one. Noise that is not its budget's is not believed without a seal either.
func TestEditedLedger(t *testing.T) {
	t.Parallel()
	l := Ledger{Path: filepath.Join(t.TempDir(), "spent.jsonl")}
	var seals [][]byte
	read := func(path string) []byte {
		return must.Get(os.ReadFile(path))(t)
	}
	for round := range uint64(3) {
		must.Get2(l.Spend(spending(usual, round, 1), 0, false))(t)
		seals = append(seals, read(l.Path+SealSuffix))
	}
	whole := read(l.Path)
	lines := bytes.SplitAfter(whole, []byte("\n"))[:3]
	smaller := usual
	smaller.Epsilon = 0.5
	was, _ := json.Marshal(usual)
	other, _ := json.Marshal(smaller)
	noise := func(k Budget) []byte { return fmt.Appendf(nil, `"noise_steps":%d`, k.NoiseSteps(10)) }
	budget := func(line []byte) []byte {
		return bytes.Replace(bytes.Replace(line, was, other, 1), noise(usual), noise(smaller), 1)
	}
	plain := bytes.ReplaceAll(whole, []byte(`"chain"`), []byte(`"other"`))
	try := func(ledger, seal []byte) error {
		t.Helper()
		for path, data := range map[string][]byte{l.Path: ledger, l.Path + SealSuffix: seal} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if data != nil {
				must.Do(t, os.WriteFile(path, data, 0o600))
			}
		}
		_, earlier, err := l.Spend(spending(usual, 9, 1), 0, false)
		if err == nil && earlier != 3 {
			t.Errorf("%d earlier releases; want 3", earlier)
		}
		return err
	}
	for name, c := range map[string]struct{ ledger, seal []byte }{
		"whole": {whole, seals[2]}, "stopped before the seal": {whole, seals[1]},
		"before there was a seal": {plain, nil},
	} {
		if err := try(c.ledger, c.seal); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct{ ledger, seal []byte }{
		"the first budget":    {slices.Concat(budget(lines[0]), lines[1], lines[2]), seals[2]},
		"the last budget":     {slices.Concat(lines[0], lines[1], budget(lines[2])), seals[2]},
		"the first taken out": {slices.Concat(lines[1], lines[2]), seals[2]},
		"the last taken out":  {slices.Concat(lines[0], lines[1]), seals[2]},
		"all taken out":       {nil, seals[2]},
		"turned":              {slices.Concat(lines[1], lines[0], lines[2]), seals[2]},
		"one twice":           {slices.Concat(whole, lines[2]), seals[2]},
		"without a chain":     {plain, seals[2]},
		"without a seal":      {whole, nil},
		"a plain line first": {slices.Concat(bytes.SplitAfter(plain, []byte("\n"))[0], whole),
			seals[2]},
		"a plain line last": {slices.Concat(whole, bytes.SplitAfter(plain, []byte("\n"))[0]),
			seals[2]},
		"a seal that is damaged": {whole, []byte("{}")},
		"a space":                {append([]byte(" "), whole...), seals[2]},
	} {
		must.Fail(try(c.ledger, c.seal))(t, "", name)
	}
	for _, n := range []string{`"noise_steps":1`, `"noise_steps":999999`} {
		must.Fail(parseLedger(bytes.Replace(whole, noise(usual), []byte(n), 1)))(
			t, "it was changed", n)
	}
}

// TestSealOfLinks: a ledger has one seal by all its names, also where a link was there before its file; one that an
// earlier program put beside a link is moved once that link is asked. Where there are two, that of the file counts.
func TestSealOfLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) Ledger { return Ledger{Path: filepath.Join(dir, name)} }
	must.Do(t, os.MkdirAll(path("real/deep").Path, 0o700))
	for link, target := range map[string]string{"link": path("real/spent").Path, "real/other": "spent",
		"of": "real/other", "round": "round", "oldest": "old", "old": "kept",
		"folder": path("real/deep").Path, "real/deep/up": "../spent"} {
		if err := os.Symlink(target, path(link).Path); err != nil {
			t.Skip(err) // a system without links
		}
	}
	for i, name := range []string{"link", "real/spent", "of", "real/other", "folder/up", "link"} {
		if _, earlier, err := path(name).Spend(spending(usual, uint64(i), 1), 0, false); err != nil || earlier != i {
			t.Errorf("%s: %d earlier releases, %v; want %d", name, earlier, err, i)
		}
	}
	if seals := must.Get(filepath.Glob(path("*" + SealSuffix).Path))(t); len(seals) > 0 {
		t.Errorf("%q are beside links", seals)
	}
	must.Fail(0, func() error { _, err := path("round").Find(spending(usual, 1, 1)); return err }())(t, "", "a circle")
	must.Get2(path("kept").Spend(spending(usual, 1, 1), 0, false))(t)
	must.Do(t, os.Rename(path("kept"+SealSuffix).Path, path("old"+SealSuffix).Path))
	for i, name := range []string{"old", "kept", "oldest", "old"} {
		if i == 2 {
			must.Do(t, os.WriteFile(path("old"+SealSuffix).Path, []byte("damaged"), 0o600))
		}
		if i == 0 {
			must.Fail(path("kept").Find(spending(usual, 1, 1)))(t, "give --ledger that link once", "a seal beside the link")
		}
		if _, earlier, err := path(name).Spend(spending(usual, uint64(i+2), 1), 0, false); err != nil || earlier != i+1 {
			t.Errorf("a seal beside the link, asked by %s: %d earlier releases, %v", name, earlier, err)
		}
		if i == 0 && there(path("old"+SealSuffix).Path) {
			t.Error("the seal beside the link is still there")
		}
	}
}

// TestHand: where servers add the noise, a draw pays for one server, and every further one is charged on the
// same images; the same server is charged once, whichever message of the release it gets. Of two servers a
// splitting goes to one pair alone.
func TestHand(t *testing.T) {
	t.Parallel()
	trusted, two := usual, usual
	trusted.Noise, two.Noise, two.Points = Trusted, TwoServers, 9
	for name, c := range map[string]struct {
		budget Budget
		made   string // a line each: a draw, "+" a salt of the one before, "A" a draw for server A
		to     string // the servers, after a number with this draw of those made
		lines  int    // in all
		spent  int    // of these
		over   string
	}{
		"one server":                     {trusted, "-", "AAA", 2, 1, ""},
		"one that it was made for":       {trusted, "A", "AA", 1, 1, ""},
		"two":                            {trusted, "-", "ABBA", 3, 2, ""},
		"two, made for one":              {trusted, "A", "BAB", 2, 2, ""},
		"two draws":                      {trusted, "--", "ABAB", 4, 2, ""},
		"a salt":                         {trusted, "-+", "AAB", 4, 2, ""},
		"two over the limit":             {trusted, "-", "AABB!", 2, 1, "--max-epsilon allows 1.1"},
		"a pair":                         {two, "-", "AAA", 2, 1, ""},
		"a pair that it was made for":    {two, "A", "AA", 1, 1, ""},
		"two pairs":                      {two, "-", "AB!", 2, 1, "went to another pair of servers"},
		"another pair than made for":     {two, "A", "B!", 1, 1, "went to another pair of servers"},
		"two pairs, each a draw":         {two, "--", "0A1B0A1B", 4, 2, ""},
		"two pairs, draws turned":        {two, "--", "0A1B0B!", 4, 2, "went to another pair of servers"},
		"two pairs, made again for one":  {two, "-A", "0A1B!", 3, 2, "went to another pair of servers"},
		"two draws to one pair":          {two, "--", "0A1A1B!", 4, 2, "went to another pair of servers"},
		"no line has the shares":         {two, "", "AAB!", 1, 0, "went to another pair of servers"},
		"the noise is in the message":    {usual, "-", "ABC", 1, 1, ""},
		"no line has it":                 {trusted, "", "AA", 1, 0, ""},
		"no line has it, another server": {trusted, "", "AB!", 1, 0, "of which images"},
	} {
		l := Ledger{Path: filepath.Join(t.TempDir(), "spent.jsonl")}
		message := NewSpending(c.budget, 10, 9, nil, nil)
		message.Client, message.Round, message.Files = "ward", 1, []Written{{"a", "0"}}
		for i, kind := range c.made {
			s := spending(c.budget, 1, 1, 2)
			s.Files = []Written{{"a", fmt.Sprint(i)}}
			message.Files = s.Files
			if kind == '+' {
				s.Images = nil
			} else if kind != '-' {
				s.Server = string(kind)
			}
			must.Get2(l.Spend(s, 0, true))(t)
		}
		limit := 0.0
		to, fails := strings.CutSuffix(c.to, "!")
		if fails {
			limit = 1.1
		}
		var failed error
		for _, server := range to {
			if server >= '0' && server <= '9' {
				message.Files = []Written{{"a", string(server)}}
				continue
			}
			message.Server = string(server)
			if _, _, err := l.Hand(message, limit); err != nil {
				failed = err
			}
		}
		if fails {
			must.Fail(failed)(t, c.over, name)
		} else {
			must.Do(t, failed)
		}
		past := must.Get(l.past())(t)
		_, releases := Total(past, spending(usual, 9, 1))
		if len(past) != c.lines || releases != c.spent {
			t.Errorf("%s: %d lines, %d of which spend; want %d and %d", name, len(past), releases, c.lines, c.spent)
		}
	}
}

// TestAllowed: a ledger whose owner is refused gets no line and is not begun; without a line nobody is asked.
func TestAllowed(t *testing.T) {
	t.Parallel()
	trusted := usual
	trusted.Noise = Trusted
	s := spending(trusted, 1, 1, 2)
	s.Files = []Written{{"a", "0"}}
	other := s
	other.Server = "B"
	spend := func(l Ledger) error { _, _, err := l.Spend(s, 0, true); return err }
	hand := func(l Ledger) error { _, _, err := l.Hand(s, 0); return err }
	handOther := func(l Ledger) error { _, _, err := l.Hand(other, 0); return err }
	for name, c := range map[string]struct {
		before, do func(Ledger) error
		asked      int
	}{
		"a first release":      {nil, spend, 1},
		"a first server":       {nil, hand, 1},
		"a second release":     {spend, spend, 1},
		"a second server":      {spend, handOther, 1},
		"a server that has it": {handOther, handOther, 0},
	} {
		l, asked, was := Ledger{Path: filepath.Join(t.TempDir(), "spent.jsonl")}, 0, []byte(nil)
		if c.before != nil {
			must.Do(t, c.before(l))
			was = must.Get(os.ReadFile(l.Path))(t)
		}
		denied := errors.New("denied")
		l.Allowed = func() error { asked++; return denied }
		if err := c.do(l); c.asked > 0 && err != denied || asked != c.asked {
			t.Errorf("%s: %v, asked %d times; want %d", name, err, asked, c.asked)
		}
		if is, _ := os.ReadFile(l.Path); !bytes.Equal(is, was) || l.begun() != (c.before != nil) {
			t.Errorf("%s: the ledger has %q, want %q", name, is, was)
		}
	}
}
