package experiment

import (
	"context"
	"fmt"
	"math"

	"fmp/pipeline/lab/rival"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// calibrated is a task without a corpus as rivals of FMP have it in the protocol of that name: they
// read features as FMP's clients embed them, and choose setting and temperature by the calibration
// points that FMP's clients send, fitted to their other rows. Rivals thereby get the knowledge that
// FMP has of these images, and no more.
type calibrated struct {
	task *rival.Task
	held rival.Held
}

// protocolCalibrated is the name of the protocol.
const protocolCalibrated = "calibrated"

// embed returns rows as FMP's clients embed them, times the root of their size, so that a penalty
// has about its strength on standardised features. A row of length 1 becomes one of mean square 1.
func (k Tools) embed(ctx context.Context, features []float32) ([]float32, error) {
	rows, err := k.Embedded.Map(ctx, features)
	if err != nil {
		return nil, err
	}
	scale := float32(math.Sqrt(float64(k.Embedded.Dx())))
	for i := range rows {
		rows[i] *= scale
	}
	return rows, nil
}

// calibrate returns a task as rivals have it: of all rows of the clients, and with them the task of
// the rows that are left where the calibration points are held out. A client's points are those
// that it sends in FMP's round of the same stream. One more point is taken to err (rival.Held), so
// that few points that are all right do not choose a temperature near 0. A client of which every
// row is held out is an error.
func (r *running) calibrate(ctx context.Context, clients []*point.Set,
	stream string) (*calibrated, error) {
	k := r.tools
	k.Embedded = nil // rivals send no moments
	var all, rest []*point.Set
	out := &calibrated{}
	out.held.Errs = 1
	for m, set := range clients {
		h, labels := set.Labelled()
		rows, err := r.tools.Embedded.Map(ctx, h)
		if err != nil {
			return nil, err
		}
		// Points are chosen by hashes of the embedded rows, before these are scaled for rivals.
		chosen := moments.Calibration(rows, set.Dx, momentsKey(stream, m), k.Calibration)
		if rows, err = r.tools.embed(ctx, h); err != nil {
			return nil, err
		}
		whole, err := point.FromLabelled(rows, set.Dx, labels, set.C)
		if err != nil {
			return nil, err
		}
		var kept []float32
		var of []int
		for i, y := range labels {
			row := rows[i*set.Dx : (i+1)*set.Dx]
			if chosen[i] {
				out.held.Features, out.held.Labels = append(out.held.Features, row...),
					append(out.held.Labels, y)
			} else {
				kept, of = append(kept, row...), append(of, y)
			}
		}
		part, err := point.FromLabelled(kept, set.Dx, of, set.C)
		if err != nil {
			return nil, err
		}
		all, rest = append(all, whole), append(rest, part)
	}
	var err error
	if out.task, err = k.task(ctx, r.Config, all, stream, r.inner, nil); err != nil {
		return nil, err
	}
	out.held.Task, err = k.task(ctx, r.Config, rest, stream, r.inner, nil)
	return out, err
}

// momentsKey is the key by which a client chooses its calibration points.
func momentsKey(stream string, client int) string {
	return fmt.Sprintf("%s, client %d", stream, client)
}
