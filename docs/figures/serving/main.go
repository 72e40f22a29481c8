// The program serving draws the figure of docs/serving.md: processor time of an image, of a server
// of CIFAR-10's classifier, against the number of requests at a time, by every interface, beside a
// bare session of the ONNX Runtime on the same graph. It prints images a second and the time of one
// request as well.
//
//	go run ./docs/figures/serving docs/figures/serving.svg
//
// A request is one image. Clients and server are one program. The ways take turns, and every figure
// is the median of the turns. It takes half a minute.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"google.golang.org/protobuf/proto"

	"fmp/docs/internal/panels"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/inferpb"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/lab/bench"
	"fmp/pipeline/shipped"
)

const (
	turns = 3 // of each way at each concurrency, beside one that warms up
	turn  = 200 * time.Millisecond
	side  = 32 // of an image of CIFAR-10
)

// concurrencies are the numbers of requests at a time.
var concurrencies = []int{1, 2, 4, 8, 16, 32, 64}

// way is a way to get the prediction of one image.
type way struct {
	name string
	ask  func() error
}

// measured is one turn of a way: images a second, and the median and the 99% quantile of a
// request's milliseconds. processor is milliseconds of an image, of client and server together.
type measured struct{ perSecond, p50, p99, processor float64 }

func main() {
	panels.Main("serving FILE.svg", func(a []string) error { return run(a[0]) })
}

// classifier returns CIFAR-10's classifier with heads of random numbers, as fmp pool writes it with
// 20 samples.
func classifier() (*onnx.Model, error) {
	m, f, err := shipped.Load("cifar10", models.KindClient)
	if err != nil {
		return nil, err
	}
	features, err := models.FeatureGraph(m, f)
	if err != nil {
		return nil, err
	}
	const samples = 20
	heads := make([]float64, samples*(f.Dx+1)*f.C)
	r := rng.New(1, "heads")
	for i := range heads {
		heads[i] = r.NormFloat64() / 4
	}
	return models.NewClassifier(models.ClassifierParts{Features: features,
		Heads: onnx.NewTensor(heads, samples, f.Dx+1, f.C)}, models.Manifest{Classes: f.Classes})
}

// open starts the server on a loopback port and returns the ways, the bare session first. The
// engine has one thread.
func open() (ways []way, end func(), err error) {
	m, err := classifier()
	if err != nil {
		return nil, nil, err
	}
	eng, err := ort.New(ort.Options{Threads: 1})
	if err != nil {
		return nil, nil, err
	}
	session, err := eng.Load(m)
	if err != nil {
		return nil, nil, err
	}
	data, err := serde.Marshal(m)
	if err != nil {
		return nil, nil, err
	}
	h, closeAll, err := service.Classifier(eng, data, nil, 0, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	srv := service.HTTPServer(h, nil)
	go func() { _ = srv.Serve(l) }()
	pixels := make([]uint8, side*side*3)
	r := rng.New(2, "pixels")
	for i := range pixels {
		pixels[i] = uint8(r.IntN(256))
	}
	bare := func() error {
		_, err := engine.Eval(session,
			map[string]*onnx.Tensor{"images": onnx.NewTensor(pixels, 1, side, side, 3)},
			"probabilities", "entropy", "mutual_information")
		return err
	}
	ways, err = overHTTP("http://"+l.Addr().String(), pixels)
	return append([]way{{"bare session", bare}}, ways...),
		func() { srv.Close(); closeAll(); session.Close(); eng.Close() }, err
}

// overHTTP returns the interfaces of a server: the inference protocol of KServe, version 2, by
// gRPC, by its extension of binary tensors and by JSON. Requests are made once and sent again and
// again; connections are kept.
func overHTTP(url string, pixels []uint8) ([]way, error) {
	post := func(c *http.Client, path, kind string, header map[string]string,
		body []byte) func() error {
		return func() error {
			req, err := http.NewRequest(http.MethodPost, url+path, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", kind)
			for k, v := range header {
				req.Header.Set(k, v)
			}
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != http.StatusOK || kind == "application/grpc" &&
				resp.Trailer.Get("Grpc-Status") != "0") {
				err = fmt.Errorf("%s: %s %.200s", path, resp.Status, answer)
			}
			return err
		}
	}
	numbers := make([]int, len(pixels))
	for i, v := range pixels {
		numbers[i] = int(v)
	}
	input := map[string]any{"name": "images", "shape": []int{1, side, side, 3}, "datatype": "UINT8",
		"data": numbers}
	text, err := json.Marshal(map[string]any{"inputs": []any{input}})
	if err != nil {
		return nil, err
	}
	// With binary tensors the pixels follow this head, which says how many bytes they have.
	delete(input, "data")
	input["parameters"] = map[string]int{"binary_data_size": len(pixels)}
	head, err := json.Marshal(map[string]any{"inputs": []any{input},
		"parameters": map[string]bool{"binary_data_output": true}})
	if err != nil {
		return nil, err
	}
	call, err := proto.Marshal(&inferpb.ModelInferRequest{ModelName: "classifier",
		Inputs: []*inferpb.Tensor{{Name: "images", Datatype: "UINT8",
			Shape: []int64{1, side, side, 3}}}, RawInputContents: [][]byte{pixels}})
	if err != nil {
		return nil, err
	}
	// A zero says that the message is not compressed, and four bytes how long it is.
	call = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(call))), call...) // a frame
	// 64 connections are kept: one for each request of the largest concurrency.
	one := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	two := &http.Transport{Protocols: new(http.Protocols)}
	// gRPC runs on HTTP/2, here without TLS.
	two.Protocols.SetUnencryptedHTTP2(true)
	const infer = "/v2/models/classifier/infer"
	return []way{
		{"gRPC", post(&http.Client{Transport: two}, "/inference.GRPCInferenceService/ModelInfer",
			"application/grpc", nil, call)},
		{"binary tensors", post(one, infer, "application/octet-stream",
			map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(head))},
			append(head, pixels...))},
		{"JSON", post(one, infer, "application/json", nil, text)},
	}, nil
}

// measure runs a way from n goroutines for one turn.
func measure(w way, n int) (m measured, err error) {
	var mu sync.Mutex
	var times []float64
	start := time.Now()
	took, err := bench.Timed(w.name, func() error {
		var group errgroup.Group
		for range n {
			group.Go(func() error {
				// A request that begins within the turn is counted, whenever it ends.
				for time.Since(start) < turn {
					begun := time.Now()
					if err := w.ask(); err != nil {
						return err
					}
					mu.Lock()
					times = append(times, float64(time.Since(begun).Microseconds())/1e3)
					mu.Unlock()
				}
				return nil
			})
		}
		return group.Wait()
	}).Once()
	if err != nil {
		return m, err
	}
	slices.Sort(times)
	// times is sorted: its places are quantiles.
	k := float64(len(times))
	return measured{k / time.Since(start).Seconds(), times[len(times)/2], times[len(times)*99/100],
		took.Seconds() / k * 1e3}, nil
}

// median returns that of a figure over turns.
func median(of []measured, get func(measured) float64) float64 {
	var v []float64
	for _, m := range of {
		v = append(v, get(m))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// run measures all ways at all concurrencies, turn by turn, so that a slow moment of the machine
// falls on all. It prints and draws the medians.
func run(path string) error {
	ways, end, err := open()
	if err != nil {
		return err
	}
	defer end()
	all := map[string][]measured{}
	for t := range turns + 1 { // the first one warms up
		for _, n := range concurrencies {
			for _, w := range ways {
				m, err := measure(w, n)
				if err != nil {
					return fmt.Errorf("%s, %d at a time: %w", w.name, n, err)
				}
				if name := fmt.Sprint(w.name, n); t > 0 {
					all[name] = append(all[name], m)
				}
			}
		}
	}
	fmt.Println("| | at a time | images a second | median, ms | 99%, ms | processor, ms an image |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: |")
	for _, w := range ways {
		for _, n := range concurrencies {
			of := all[fmt.Sprint(w.name, n)]
			fmt.Printf("| %s | %d | %.0f | %.2f | %.1f | %.2f |\n", w.name, n,
				median(of, func(m measured) float64 { return m.perSecond }),
				median(of, func(m measured) float64 { return m.p50 }),
				median(of, func(m measured) float64 { return m.p99 }),
				median(of, func(m measured) float64 { return m.processor }))
		}
	}
	return draw(path, ways, all)
}

// draw draws the processor time.
func draw(path string, ways []way, all map[string][]measured) error {
	p := panels.New("processor, ms an image")
	p.X.Scale, p.Y.Min = plot.LogScale{}, 0
	var ticks plot.ConstantTicks
	for _, n := range concurrencies {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	p.X.Tick.Marker = ticks
	p.X.Label.Text, p.X.Label.TextStyle = "requests at a time", panels.Style(9, panels.Palette[8])
	p.Legend.Top, p.Legend.TextStyle, p.Legend.Padding = true,
		panels.Style(9, panels.Palette[8]), vg.Points(8)
	p.Y.Max = 1.8 // room for the legend
	for i, w := range ways {
		var at plotter.XYs
		for _, n := range concurrencies {
			at = append(at, plotter.XY{X: float64(n), Y: median(all[fmt.Sprint(w.name, n)],
				func(m measured) float64 { return m.processor })})
		}
		marks := plotter.DefaultGlyphStyle
		marks.Color = panels.Palette[i]
		p.Legend.Add(w.name, p.Line(panels.Palette[i], 1, at...))
		p.Dots(marks, at...)
	}
	return panels.SaveSized(path, 5*72, 3*72, p)
}
