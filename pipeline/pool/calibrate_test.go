package pool

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/client"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate"
	"fmp/pipeline/posterior"
)

// drawings is a source of drawn digits.
type drawings struct {
	pix    []uint8
	labels []uint8
	size   int
}

func (s *drawings) Len() int     { return len(s.labels) }
func (s *drawings) Close() error { return nil }

func (s *drawings) Next(_ context.Context, dst []uint8) (imagefile.Item, error) {
	copy(dst, s.pix[:s.size])
	item := imagefile.Item{Label: int(s.labels[0])}
	item.Digest = sha256.Sum256(s.pix[:s.size])
	s.pix, s.labels = s.pix[s.size:], s.labels[1:]
	return item, nil
}

// uploads returns the uploads of clients of 100 images each, with some of them as calibration
// points; bad clients name the next class for each.
func (o *owners) calibrated(t *testing.T, clients, calibrate, bad int) []Upload {
	t.Helper()
	const n = 100
	size := o.drawn.Side * o.drawn.Side
	c := must.Get(client.New(o.graph, o.client, 1))(t)
	var us []Upload
	for m := range clients {
		labels := make([]uint8, n)
		for i := range labels {
			labels[i] = uint8(o.drawn.Train.Labels[m*n+i])
			if m < bad {
				labels[i] = (labels[i] + 1) % 10
			}
		}
		name := fmt.Sprint("owner ", m)
		u, _ := must.Get2(c.Upload(t.Context(), &drawings{o.drawn.Train.Pix[m*n*size:], labels, size},
			client.Options{Calibrate: calibrate, Secret: &client.Secret{byte(m)}}, name))(t)
		data := must.Get(u.Encode())(t)
		u = must.Get(federate.Decode(data, federate.Expect{Model: o.client.Digest}))(t)
		us = append(us, Upload{Upload: u})
	}
	return us
}

// held returns the share of test images whose set holds their class, and the mean size of a set.
func (o *owners) held(t *testing.T, m *onnx.Model) (share, size float64) {
	t.Helper()
	sets := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(o.drawn.Test.Pix)},
		"set")["set"].Data.([]bool)
	labels := o.drawn.Test.Labels
	for i, y := range labels {
		for c, in := range sets[i*10 : (i+1)*10] {
			if in {
				size++
				if c == int(y) {
					share++
				}
			}
		}
	}
	return share / float64(len(labels)), size / float64(len(labels))
}

// TestCalibratedMeans: a round of class means with calibration points has sets that hold as stated,
// without those of clients that lie; the posterior does not see the points; too few are refused
// where a level was asked for.
func TestCalibratedMeans(t *testing.T) {
	o := newOwners(t, 3)
	us := o.calibrated(t, 6, 10, 1)
	r := must.Get(New(us, o.graph, o.client, Options{Seed: 1, Threads: 1}))(t)
	p := must.Get(r.Posterior(t.Context(), o.eng))(t)
	if p.Sets == nil || p.Sets.Images != 50 || p.Sets.Clients != 5 || p.Sets.Level != Level {
		t.Fatalf("sets %+v; want those of 50 points of five honest clients, P(honest) %.2f", p.Sets,
			p.Judgement.Honest)
	}
	share, size := o.held(t, must.Get(r.Classifier(t.Context(), p, false, false, ""))(t))
	t.Logf("sets of %d points hold %.3f of 400 images, mean size %.2f", p.Sets.Images, share, size)
	if share < .85 || size > 3 {
		t.Errorf("sets hold %.3f, mean size %.2f", share, size)
	}
	for i := range us {
		u := *us[i].Upload
		u.Calibration = nil
		us[i].Upload = &u
	}
	r = must.Get(New(us, o.graph, o.client, Options{Seed: 1, Threads: 1}))(t)
	without := must.Get(r.Posterior(t.Context(), o.eng))(t)
	for s := range p.Ensembles[0] {
		if fmt.Sprint(p.Ensembles[0][s].W) != fmt.Sprint(without.Ensembles[0][s].W) {
			t.Fatalf("sample %d depends on the calibration points", s)
		}
	}
	if without.Sets != nil {
		t.Errorf("sets %+v without points", without.Sets)
	}
	r, err := New(us, o.graph, o.client, Options{Seed: 1, Sets: Sets{Level: .9}})
	if err == nil {
		_, err = r.Posterior(t.Context(), o.eng)
	}
	must.Failed(t, "a level without points", err, "--calibrate")
}

// TestSetsByClass: sets by class and for named shares of classes hold as stated on the images that
// they are for, from one round; either is refused where points are too few, both together always,
// and the other score has the same guarantee.
func TestSetsByClass(t *testing.T) {
	o := newOwners(t, 5)
	us := o.calibrated(t, 6, 20, 0)
	shares := make([]float64, 10)
	for _, c := range []struct {
		Options
		want string // error; "": none
	}{
		{Options{Sets: Sets{Level: 0.8, ByClass: true}}, ""},
		{Options{Sets: Sets{Level: 0.8, Proportions: "3=0.75,8=0.25"}}, ""},
		{Options{Sets: Sets{Level: 0.9, Score: conformal.Adaptive}}, ""},
		{Options{Sets: Sets{Level: 0.99, ByClass: true}}, "by class wants at least 137"},
		{Options{Sets: Sets{Level: 0.99, Proportions: "3=1"}}, "for the given shares"},
		{Options{Sets: Sets{Proportions: "ten=1"}}, "none of the classes"},
		{Options{Sets: Sets{Proportions: "3=1", ByClass: true}}, "leave the shares out"},
		{Options{Sets: Sets{Score: "best"}}, "allowed are"},
	} {
		c.Seed, c.Threads, c.Samples = 1, 1, 30
		r, err := New(us, o.graph, o.client, c.Options)
		var m *onnx.Model
		if err == nil {
			var p *posterior.Result
			if p, err = r.Posterior(t.Context(), o.eng); err == nil {
				if p.Sets == nil || p.Sets.ByClass != c.ByClass ||
					(p.Sets.Proportions != nil) != (c.Proportions != "") {
					t.Fatalf("%+v: sets %+v", c.Options, p.Sets)
				}
				m, err = r.Classifier(t.Context(), p, false, false, "")
			}
		}
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v; want %q", c.Options, err, c.want)
			}
			continue
		}
		must.Do(t, err)
		clear(shares)
		for y := range shares {
			shares[y] = 0.1
		}
		if c.Proportions != "" {
			clear(shares)
			shares[3], shares[8] = 0.75, 0.25
		}
		sets := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(o.drawn.Test.Pix)},
			"set")["set"].Data.([]bool)
		var held, of [10]float64
		for i, y := range o.drawn.Test.Labels {
			if of[y]++; sets[i*10+int(y)] {
				held[y]++
			}
		}
		var mean float64
		for y, w := range shares {
			mean += w * held[y] / of[y]
			// some 16 points: a deviation of .1, and as much on 40 images
			if c.ByClass && held[y]/of[y] < 0.55 {
				t.Errorf("class %d: %v of %v images are held", y, held[y], of[y])
			}
		}
		t.Logf("%+v: %.3f held", c.Options, mean)
		if mean < c.Level-0.04 {
			t.Errorf("%+v: %.3f are held", c.Options, mean)
		}
	}
}
