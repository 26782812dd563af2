package coll

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/session"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
	"github.com/assay-hpc/assay/internal/version"
)

// A Config configures communicators. The zero value takes the settings from the environment.
type Config struct {
	Knobs *knob.Knobs   // nil: read from the environment
	Log   *debug.Logger // nil: opened as Knobs say
	// Silence is how long a host may be unreachable before its ranks count as
	// dead; 0 is the bootstrap's default.
	Silence time.Duration
	// Device is the ordinal of the CUDA device that the rank works on; nil: no device, and all
	// memory is the processor's. Either all ranks of a communicator have a device or none has.
	Device *int
	// GPUs creates the executor of operations on devices: cuda.Factory. nil: the program has no
	// device support.
	GPUs *executor.Factory
	// Devices are the devices for CommInitRanks and CommInitAll, in the order of the ranks to
	// join. They take precedence over Device.
	Devices []int
	// AsNCCL is for programs that use NCCL's API. A stream may be destroyed as soon as the
	// operation on it was called. When the communicator fails, operations on device memory that
	// have not ended block their streams until Abort or Destroy, so that a program that
	// synchronizes a stream does not take unfinished data for a result.
	AsNCCL bool
	// Name is the communicator's name in verdicts.
	Name string
	// OnHang is called, from a goroutine of the communicator, when the rank has waited on its
	// device for ASSAY_HANG_AFTER, or waits for a rank that is lost. The Verdict contains what is
	// known about the reason. OnHang needs AsNCCL. nil: the verdict is logged.
	OnHang func(hang.Verdict)
	// Fallback returns the file of NVIDIA's libnccl.so.2, for what the engine does not do on
	// devices itself; "" if there is no such file. named is the value of ASSAY_NCCL_FALLBACK, ""
	// if that is not set. nil: the named file is used.
	Fallback func(named string) string
	// Environ contains the variables that settings are read from, in the form of os.Environ; nil:
	// those of the process.
	Environ []string
}

// settings is a Config with its defaults filled in.
type settings struct {
	*knob.Knobs
	log    *debug.Logger
	owned  *debug.Logger // opened here, and to be closed
	rings  [][]int
	boot   bootstrap.Options
	device *int
	gpus   *executor.Factory
	asNCCL bool
	name   string
	onHang func(hang.Verdict)
	find   func(named string) string // Config.Fallback
	job    int                       // the process's number in its job, for verdicts and recorders; -1: unknown
}

func (cfg Config) complete(rank, size int) (s settings, err error) {
	s = settings{Knobs: cfg.Knobs, log: cfg.Log, device: cfg.Device, gpus: cfg.GPUs, asNCCL: cfg.AsNCCL, name: cfg.Name, onHang: cfg.OnHang, find: cfg.Fallback} // Knobs are shared and not changed
	s.job = -1
	if w, err := bootstrap.Detect(os.Getenv); err == nil && w.Launcher != "none" {
		s.job = w.Rank
	}
	var said []knob.Warning
	if s.Knobs == nil {
		environ := cfg.Environ
		if environ == nil {
			environ = os.Environ()
		}
		k, warnings, err := knob.Load(environ, nil)
		if err != nil {
			return s, err
		}
		s.Knobs = k
		said = knob.News(warnings)
	}
	if s.log == nil {
		l := s.OpenLog()
		s.log, s.owned = l.ForRank(rank, rank), l
	}
	if rank == 0 {
		s.log.Version("assay " + version.Get().Version + ", with the interface of NCCL " + ncclVersion)
		for _, set := range s.Settings() {
			s.log.Infof(debug.Env, "%v", set)
		}
	}
	for _, w := range said {
		if w.Level == debug.Warn {
			s.log.Warnf("%v", w)
		} else {
			s.log.Infof(debug.Env, "%v", w)
		}
	}
	var left int
	if s.rings, left = s.RingsFor(size); left > 0 {
		s.log.Infof(debug.Graph, "NCCL_RINGS: %d rings are not an order of the %d ranks and are left out", left, size)
	}
	limit := cmp.Or(s.Timeout, bootstrap.NoLimit)
	if s.asNCCL { // which waits for ranks as long as they take
		limit = bootstrap.NoLimit
	}
	log := s.log
	s.boot = bootstrap.Options{
		Ifname: s.SocketIfname, Family: s.SocketFamily, Silence: cfg.Silence, Timeout: limit,
		Logf:  func(f string, a ...any) { log.Infof(debug.Bootstrap, f, a...) },
		Warnf: log.Warnf,
	}
	return s, nil
}

// ncclVersion is the NCCL release that this package follows in its calls and variables.
const ncclVersion = "2.30.7"

// GetUniqueID creates the ID of a communicator. The process that calls it must live until all
// ranks have joined: they find one another through it.
func GetUniqueID(cfg Config) (UniqueID, error) {
	id, _, err := newID(cfg)
	return id, err
}

// newID is GetUniqueID, and returns the root as well. The root closes itself when all ranks have
// joined or one has failed; if it is possible that none joins, the caller must close it. It is
// nil if rank 0 will listen at NCCL_COMM_ID.
func newID(cfg Config) (UniqueID, *bootstrap.Root, error) {
	fail := func(code Code, err error) (UniqueID, *bootstrap.Root, error) {
		return UniqueID{}, nil, &Error{Code: code, Rank: NoPeer, Op: "GetUniqueID", Peer: NoPeer, Err: err}
	}
	s, err := cfg.complete(0, 1)
	if err != nil {
		return fail(settingCode(err), err)
	}
	if s.CommID != "" {
		defer s.owned.Close()
		id, err := bootstrap.IDAt(s.CommID, jobSecret())
		if err != nil {
			return fail(InvalidArgument, err)
		}
		return id, nil, nil
	}
	root, err := bootstrap.NewRoot(s.boot)
	if err != nil {
		_ = s.owned.Close()
		return fail(joinCode(err), err)
	}
	if s.owned != nil {
		go func() {
			<-root.Done()
			_ = s.owned.Close()
		}()
	}
	return root.ID(), root, nil
}

// jobSecret is the secret that keeps out foreign processes that know NCCL_COMM_ID.
func jobSecret() []byte { return []byte(os.Getenv("ASSAY_JOB_SECRET")) }

// byCommID returns the ID for NCCL_COMM_ID. As in NCCL, it replaces the ID that the ranks were
// given. Rank 0 listens at that address.
func (s *settings) byCommID(rank int) (id UniqueID, root *bootstrap.Root, err error) {
	if rank == 0 {
		if root, err = bootstrap.NewRootAt(s.CommID, jobSecret(), s.boot); err != nil {
			return id, nil, err
		}
		return root.ID(), root, nil
	}
	id, err = bootstrap.IDAt(s.CommID, jobSecret())
	return id, nil, err
}

// CommInitAll creates a communicator of n ranks in this process. The result is by rank.
func CommInitAll(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	if n < 1 {
		return nil, &Error{Code: InvalidArgument, Rank: NoPeer, Op: "CommInitAll", Peer: NoPeer, Err: fmt.Errorf("there is no communicator of %d ranks", n)}
	}
	id, root, err := newID(cfg)
	if err != nil {
		return nil, err
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	comms, err := CommInitRanks(ctx, n, id, ranks, cfg)
	if err != nil && root != nil {
		_ = root.Close()
	}
	return comms, err
}

// CommInitRanks joins several of a communicator's n ranks, as a group of CommInitRank calls
// would. The result is in the order of ranks, and nil on an error.
func CommInitRanks(ctx context.Context, n int, id UniqueID, ranks []int, cfg Config) ([]*Comm, error) {
	comms, errs := make([]*Comm, len(ranks)), make([]error, len(ranks))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.Devices != nil && len(cfg.Devices) != len(ranks) {
		return nil, &Error{Code: InvalidArgument, Rank: NoPeer, Op: "CommInitRanks", Peer: NoPeer, Err: fmt.Errorf("there are %d devices for %d ranks", len(cfg.Devices), len(ranks))}
	}
	for i, r := range ranks {
		cfg := cfg
		if cfg.Devices != nil {
			cfg.Device = &cfg.Devices[i]
		}
		wg.Go(func() {
			if comms[i], errs[i] = CommInitRank(ctx, n, id, r, cfg); errs[i] != nil {
				cancel(errs[i]) // the others need not wait for it
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && slices.ContainsFunc(errs, func(e error) bool { return e == err }) {
		errs = append([]error{err}, errs...) // the first one, before those that it caused
	}
	for _, err := range errs {
		if err != nil {
			for _, c := range comms {
				if c != nil {
					_ = c.Abort()
				}
			}
			return nil, err
		}
	}
	return comms, nil
}

// CommInitRank joins a communicator of n ranks as the given rank, and waits for the others.
func CommInitRank(ctx context.Context, n int, id UniqueID, rank int, cfg Config) (_ *Comm, err error) {
	const op = "CommInitRank"
	fail := func(code Code, err error) (*Comm, error) {
		var e *Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, &Error{Code: code, Rank: rank, Op: op, Peer: NoPeer, Err: err}
	}
	if n < 1 || rank < 0 || rank >= n {
		return fail(InvalidArgument, fmt.Errorf("there is no rank %d of %d", rank, n))
	}
	s, err := cfg.complete(rank, n)
	if err != nil {
		return fail(settingCode(err), err)
	}
	var root *bootstrap.Root // of NCCL_COMM_ID
	defer func() {
		if err == nil {
			return
		}
		if root != nil {
			_ = root.Close()
		}
		_ = s.owned.Close()
	}()
	if s.CommID != "" {
		if id, root, err = s.byCommID(rank); err != nil {
			return fail(SystemError, err)
		}
	}
	c := newComm(rank, n, s)
	if c.net, err = bootstrap.Join(ctx, id, rank, n, c.bootOptions()); err != nil {
		if f := c.fault.Err(); f != nil {
			return nil, c.wrap(op, f)
		}
		return fail(joinCode(err), err)
	}
	c.kin = joinSiblings(c.net.Key("siblings"))
	c.hang.Name, c.hang.Key = c.Name(), c.kin.key
	if err = c.agree(ctx); err == nil {
		if err = c.open(ctx, ""); err == nil {
			err = openDevice(ctx, c)
		}
	}
	if err != nil {
		c.kin.drop()
		e := c.wrap(op, err)
		c.fault.Set(e)
		c.net.Abort()
		_ = c.dev.close(nil)
		if c.links != nil {
			_ = c.links.Close()
		}
		return nil, e
	}
	if rank == 0 && s.TopoDumpFile != "" {
		if err := session.DumpTopology(s.TopoFile, s.TopoDumpFile); err != nil {
			c.cfg.log.Warnf("NCCL_TOPO_DUMP_FILE: %v", err)
		}
	}
	c.cfg.log.Infof(debug.Init, "comm rank %d nranks %d %s - slots of %d bytes - Init COMPLETE", rank, n, c.links, c.session.Env.Slot)
	return c, nil
}

// agree agrees with the other ranks on the settings.
func (r *ranks) agree(ctx context.Context) (err error) {
	s := session.Config{
		Knobs: r.cfg.Knobs, Rank: r.rank, Size: r.size, Boot: r.net, Fault: &r.fault, Broken: r.broken,
		Log: r.cfg.log, Rings: r.cfg.rings, Term: r.cfg.deviceTerm(), Device: r.cfg.device,
	}
	if r.cfg.gpus != nil {
		s.Bus = r.cfg.gpus.Bus
	}
	r.session, err = session.New(ctx, s)
	return err
}

// of returns a Comm without connections. numbered is set if its collectives have the communicator's
// numbers; those of lanes have their own.
func (r *ranks) of(numbered bool) *Comm {
	c := &Comm{ranks: r, gate: gate{shared: r}}
	c.hostPath = hostPath{shared: r, waits: hang.NewWaits(&r.hang, numbered), sent: make([]uint32, r.size), rcvd: make([]uint32, r.size)}
	c.single[0] = &c.one
	return c
}

func newComm(rank, n int, s settings) *Comm {
	c := (&ranks{rank: rank, size: n, cfg: s}).of(true)
	var cancel context.CancelCauseFunc
	c.broken, cancel = context.WithCancelCause(context.Background())
	c.hang = hang.Comm{
		Rank: rank, Size: n, Fault: &c.fault, Broken: c.broken, Send: func(r hang.Report) { c.report(report{Hang: &r}) },
		Log: s.log, After: s.HangAfter, Dir: s.HangDir, Verdicts: s.asNCCL, OnHang: s.onHang,
	}
	c.fault.Hook = func(err error) {
		cancel(err)
		switch d := c.accel.Load(); {
		case d == nil:
		case !s.asNCCL:
			d.Abort(err)
		default:
			d.watchdog.Broken(err)
		}
		c.announce(err)
	}
	return c
}

// settingCode is the code for a Config that cannot be used: of a variable, that of NCCL.
func settingCode(err error) Code {
	if _, ok := errors.AsType[*knob.Error](err); ok {
		return InvalidUsage
	}
	return InvalidArgument
}

func joinCode(err error) Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return Timeout
	case errors.Is(err, meet.ErrNoInterface):
		return InvalidUsage
	}
	return SystemError
}

// bootOptions returns the bootstrap's options, with the functions to which it reports what
// happens to other ranks.
func (c *Comm) bootOptions() bootstrap.Options {
	o := c.cfg.boot
	o.OnDeath = func(rank int, what string) {
		c.fault.Set(&transport.PeerError{Rank: rank, By: c.rank, What: what, Told: true})
	}
	o.OnReport = func(from int, payload []byte) {
		var r report
		if json.Unmarshal(payload, &r) != nil {
			return // of another version, or damaged
		}
		switch {
		case r.Regroup != nil:
			c.regroupings.heard(from, *r.Regroup)
		case r.Hang != nil:
			c.waits.Heard(from, *r.Hang)
			if d := c.accel.Load(); d != nil {
				d.watchdog.Heard(from, *r.Hang)
			}
		case r.Abort && r.Parted != nil && c.cfg.asNCCL:
			p := &parting{rank: from, calls: *r.Parted, err: r.error(c.rank, from), c: c}
			p.heard()
		case r.Code != Success: // a report without a code says nothing about an error
			c.fault.Set(r.error(c.rank, from))
		}
	}
	return o
}

// A report tells the other ranks why a rank gave up, if it has a code.
type report struct {
	Code   Code    `json:"code,omitempty"`
	Text   string  `json:"text,omitempty"`
	Abort  bool    `json:"abort,omitempty"`
	Peer   *int    `json:"peer,omitempty"`   // the rank that is lost, which is not the one that reports it
	Parted *uint32 `json:"parted,omitempty"` // of an abort: parting.calls

	// Reports that are not errors: where the ranks of a new communicator meet, and what a rank
	// waits in.
	Regroup *regrouping  `json:"regroup,omitempty"`
	Hang    *hang.Report `json:"hang,omitempty"`
}

func (r report) error(rank, from int) error {
	e := &Error{Code: RemoteError, Rank: rank, Op: "asynchronous", Peer: from}
	if r.Peer != nil {
		e.Peer = *r.Peer
	}
	switch {
	case r.Abort:
		e.Err = fmt.Errorf("%w by rank %d", ErrAborted, e.Peer)
	case r.Peer != nil:
		e.Err = errors.New(r.Text)
	default:
		e.Err = fmt.Errorf("rank %d gave up: %s", from, r.Text)
	}
	return e
}

// announce tells the other ranks about this rank's error, unless they know it.
func (r *ranks) announce(err error) {
	if r.net == nil {
		return
	}
	defer r.net.Flush() // the program may end because of the error: also what this rank forwards must be out
	var e *Error
	if !errors.As(err, &e) {
		e = r.wrap("asynchronous", err)
	}
	told := report{Code: e.Code, Text: e.Error(), Abort: errors.Is(e, ErrAborted)}
	if p, ok := errors.AsType[*parting](err); ok {
		told.Parted = &p.calls
	}
	switch lost, ok := errors.AsType[*transport.PeerError](err); {
	case ok && lost.Told:
		return
	case ok:
		told.Peer, told.Text = &lost.Rank, lost.Error()
	case e.Code == RemoteError: // another rank's report
		return
	}
	r.report(told)
}

// report sends a report to the other ranks. It may be lost.
func (r *ranks) report(what report) {
	if payload, err := json.Marshal(what); err == nil {
		r.net.Report(payload)
	}
}
