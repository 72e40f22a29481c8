package service

import (
	"strconv"
	"sync"
	"time"
)

// statistics counts the predictions of a version.
type statistics struct {
	mu     sync.Mutex
	counts modelStatistics
}

// modelStatistics is the JSON of Triton's statistics extension.
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
	BatchStats []struct{} `json:"batch_stats"` // not kept
}

// duration is how often something was done, and the time that it took in all.
type duration struct {
	Count int64 `json:"count"`
	NS    int64 `json:"ns"`
}

func (d *duration) add(t time.Duration) {
	d.Count++
	d.NS += t.Nanoseconds()
}

// stages are the times at which the stages of one request ended.
type stages struct{ start, queued, built, inferred time.Time }

// add counts a request that ends now: of n images or rows, or a failed one.
func (s *statistics) add(at stages, n int, err error) {
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
	c.ExecutionCount++
	c.InferenceStats.Success.add(now.Sub(at.start))
	c.InferenceStats.Queue.add(at.queued.Sub(at.start))
	c.InferenceStats.ComputeInput.add(at.built.Sub(at.queued))
	c.InferenceStats.ComputeInfer.add(at.inferred.Sub(at.built))
	c.InferenceStats.ComputeOutput.add(now.Sub(at.inferred))
}

// of returns the statistics of a version.
func (s *statistics) of(version int) modelStatistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Name, c.Version, c.BatchStats = modelName, strconv.Itoa(version), []struct{}{}
	return c
}
