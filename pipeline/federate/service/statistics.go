package service

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// statistics counts the predictions of a version.
// Its zero value counts nothing yet. Methods are safe for concurrent use.
type statistics struct {
	mu     sync.Mutex
	counts modelStatistics
	// batches are the runs by their number of images or rows.
	batches map[int]*duration
}

// batchStatistics are the runs of one number of images or rows.
type batchStatistics struct {
	Size         int      `json:"batch_size"`
	ComputeInfer duration `json:"compute_infer"`
}

// modelStatistics is the JSON of Triton's statistics extension.
// Durations are sums in nanoseconds, and a mean is NS/Count.
type modelStatistics struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// LastInference is in milliseconds since 1970; 0 if there was none.
	LastInference int64 `json:"last_inference"`
	// InferenceCount counts images or rows, ExecutionCount runs of the classifier.
	InferenceCount int64 `json:"inference_count"`
	ExecutionCount int64 `json:"execution_count"`
	InferenceStats struct {
		Success       duration `json:"success"`
		Fail          duration `json:"fail"`
		Queue         duration `json:"queue"`
		ComputeInput  duration `json:"compute_input"`
		ComputeInfer  duration `json:"compute_infer"`
		ComputeOutput duration `json:"compute_output"`
	} `json:"inference_stats"`
	BatchStats []batchStatistics `json:"batch_stats"`
}

// duration is how often something was done, and the time that it took in all.
type duration struct {
	Count int64 `json:"count"`
	NS    int64 `json:"ns"`
}

// add counts one more. The caller holds the lock of the statistics.
func (d *duration) add(t time.Duration) {
	d.Count++
	d.NS += t.Nanoseconds()
}

// stages are those of one request: when it came and when the last of its images or rows was
// computed, and how long they waited and ran.
// computed - start is the wait, the runs and the rest, which is reading the input.
type stages struct {
	start, computed time.Time
	queue, infer    time.Duration
}

// ran counts a run of the classifier on n images or rows.
// A run may serve images of several requests, and counts once.
func (s *statistics) ran(n int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.ExecutionCount++
	if s.batches == nil {
		s.batches = map[int]*duration{}
	}
	if s.batches[n] == nil {
		s.batches[n] = &duration{}
	}
	s.batches[n].add(took)
}

// add counts a request that ends now: of n images or rows, or a failed one.
// A failed request adds to Fail alone.
func (s *statistics) add(at *stages, n int, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	if err != nil {
		c.InferenceStats.Fail.add(now.Sub(at.start))
		return
	}
	c.LastInference = now.UnixMilli()
	c.InferenceCount += int64(n)
	c.InferenceStats.Success.add(now.Sub(at.start))
	c.InferenceStats.Queue.add(at.queue)
	c.InferenceStats.ComputeInput.add(at.computed.Sub(at.start) - at.queue - at.infer)
	c.InferenceStats.ComputeInfer.add(at.infer)
	c.InferenceStats.ComputeOutput.add(now.Sub(at.computed))
}

// of returns the statistics of a version.
// Sizes ascend. The copy is the caller's.
func (s *statistics) of(version int) modelStatistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Name, c.Version, c.BatchStats = modelName, strconv.Itoa(version), []batchStatistics{}
	for _, n := range slices.Sorted(maps.Keys(s.batches)) {
		c.BatchStats = append(c.BatchStats, batchStatistics{n, *s.batches[n]})
	}
	return c
}
