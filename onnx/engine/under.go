package engine

import (
	"context"

	"fmp/onnx"
)

// Under returns e with sessions whose runs end when ctx is done, beside the context of each run. It
// is for code that makes an engine within one task and hands it on.
func Under(ctx context.Context, e Engine) Engine { return under{e, ctx} }

// under keeps the task's context beside the engine, since Engine's methods take none.
type under struct {
	Engine
	ctx context.Context
}

// Identity is that of the engine.
func (u under) Identity() string { return Identity(u.Engine) }

// Load prepares a model.
func (u under) Load(m *onnx.Model) (Session, error) {
	s, err := u.Engine.Load(m)
	if err != nil {
		return nil, err
	}
	return underSession{s, u.ctx}, nil
}

// underSession ends its runs by both contexts.
type underSession struct {
	Session
	ctx context.Context
}

// Run evaluates the model; see [Session].
func (s underSession) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	// A run's context that never ends adds nothing to the task's.
	if ctx.Done() == nil {
		return s.Session.Run(s.ctx, feeds, fetch)
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	if err := Stopped(s.ctx); err != nil {
		return err
	}
	return s.Session.Run(both, feeds, fetch)
}
