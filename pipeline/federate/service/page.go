package service

import (
	"bytes"
	_ "embed" // the page's stylesheet
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/internal/design"
)

//go:embed page.css
var style string

// page serves the status as an HTML page.
// A page that fails midway is logged, and is sent as far as it is.
// The body is made in memory first, as its length goes ahead of it.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	st := s.Status()
	if err := st.html(s.Page != nil).Render(&body); err != nil {
		s.Log.Error("status page", "error", err)
	}
	whole(w, http.StatusOK, "text/html; charset=utf-8", &body)
}

// html returns a self-contained page. Names and reasons are written by clients: elements escape
// them.
// It loads nothing: the style is inside, and the icon is an empty data URL.
// joins tells that the server has the pages under join/, which the header then links.
func (st *Status) html(joins bool) g.Node {
	title := fmt.Sprintf("Round %d", st.Round)
	heading := title
	if st.Title != "" {
		heading += ": " + st.Title
	}
	round := wire.RoundPath(st.Round)
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Textf("%s: %d of %d in", title, st.In, st.Clients)),
			h.Link(h.Rel("icon"), h.Href("data:,")),
			h.StyleEl(g.Raw(design.CSS+style)),
		), g.Text("\n"),
		h.Body(h.Header(h.Span(h.Class("mark"), g.Text("fmp")), g.If(joins,
			g.Group{h.A(h.Href("join/"), g.Text("Take part")),
				h.A(h.Href("join/predict.html"), g.Text("Classify"))})), h.Main(
			h.H1(g.Text(heading)),
			h.P(h.Class("lead"), st.phase(), g.Textf(" It is %s.", when(st.Now))),
			h.P(h.ID("in"), h.Class("count"), g.Text(strconv.Itoa(st.In)),
				h.Small(g.Textf(" of %d clients are in", st.Clients),
					g.Iff(!st.past(), func() g.Node {
						return g.Textf("; the classifier is made at %d, or at the deadline",
							st.Quorum)
					}), g.Text("."))),
			h.Progress(h.Max(strconv.Itoa(st.Clients)), h.Value(strconv.Itoa(st.In)),
				h.Aria("label", "Clients that are in"),
				g.Textf("%d %%", 100*st.In/max(st.Clients, 1))),
			g.If(st.Privacy != nil, h.P(h.ID("private"),
				g.Textf("This round is private: %v. What is in is %s; nobody's honesty "+
					"is judged and nobody's images are counted.", st.Privacy, st.whatIsIn()))),
			g.If(st.Privacy == nil && !st.Honesty,
				h.P(g.Text("Nobody's honesty is judged in this round."))),
			g.If(st.Failure != "", h.P(h.Class("bad"),
				g.Text("There is no new classifier: "+st.Failure))),
			g.If(st.Unserved != "", h.P(h.Class("bad"),
				g.Text("The latest classifier makes no predictions here: "+st.Unserved))),
			g.If(st.Unerased, h.P(h.ID("unerased"), h.Class("bad"),
				g.Text("Bytes of withdrawn or replaced uploads are still to be erased, or "+
					"withdrawals to be recorded: a disk lacks room, the record cannot be "+
					"written, or the store does not answer."))),
			section("Classifier", "None yet.", st.classifier(round)),
			section(fmt.Sprintf("Refused (%d)", len(st.Refused)), "Nothing.",
				list(st.Refused, []g.Node{
					h.Th(g.Text("client")), h.Th(g.Text("why")), number(h.Th, "times"),
					h.Th(g.Text("last"))}, refusedRow)),
			section(fmt.Sprintf("In (%d)", st.In), "Nobody yet.", list(st.Members, []g.Node{
				h.Th(g.Text("client")), number(h.Th, "images"), number(h.Th, "counted"),
				number(h.Th, "P(honest)"),
				h.Th(h.Class("spare"), g.Text("since")), h.Th(h.Class("spare"), g.Text("upload"))},
				st.memberRow)),
			g.If(len(st.Withdrawn) > 0,
				section(fmt.Sprintf("Withdrawn (%d)", len(st.Withdrawn)), "",
					list(st.Withdrawn, []g.Node{
						h.Th(g.Text("client")), h.Th(g.Text("by")), h.Th(g.Text("since"))},
						withdrawnRow))),
			g.If(!st.Withdrawal, h.P(h.ID("kept"),
				g.Text("Uploads of this round cannot be withdrawn: its one noisy sum "+
					"hides them."))),
			section("Missing", "Nobody.", names(st.Missing)),
			h.P(g.Text("Lists end at 1,000 clients; "),
				h.A(h.Href(round+"/status"), g.Text("as JSON")), g.Text(", "),
				h.A(h.Href("/metrics"), g.Text("metrics")), g.Text(", "),
				h.A(h.Href("/v1/openapi.yaml"), g.Text("interface")), g.Text(".")),
		)),
	))
}

// past reports whether the deadline has passed.
func (st *Status) past() bool { return !st.Now.Before(st.Deadline) }

// phase says whether uploads are accepted.
func (st *Status) phase() g.Node {
	switch {
	case st.State == wire.Open:
		return g.Group{h.Span(h.Class("good"), g.Text("Open")),
			g.Textf(" until %s.", when(st.Deadline))}
	case st.State == wire.Late:
		return g.Textf("Past its deadline (%s); late uploads count.", when(st.Deadline))
	case st.Privacy != nil && len(st.Versions) > 0:
		return g.Text("Closed: its classifier is made.")
	case !st.past():
		return g.Text("Closed: who is in its classifier is settled.")
	}
	return g.Textf("Closed since %s.", when(st.Deadline))
}

// classifier describes the latest version, with links to the earlier ones.
// A private round counts no images. An earlier version with a withdrawn upload has no link.
func (st *Status) classifier(round string) g.Group {
	if len(st.Versions) == 0 {
		return nil
	}
	v := st.Versions[len(st.Versions)-1]
	images := ""
	if st.Privacy == nil {
		images = fmt.Sprintf(", %d images", v.Points)
	}
	out := g.Group{h.P(g.Textf("Version %d, made %s of %d uploads%s: ", v.Number, when(v.Time),
		v.Clients, images), h.A(h.Href(round+"/classifier.onnx"), g.Text("classifier.onnx")),
		g.Textf(", %d bytes, sha256 ", v.Bytes), h.Code(g.Text(v.Digest)), g.Text("."))}
	if v.Superseded != nil {
		out = append(out, h.P(h.Class("bad"),
			g.Text("It holds an upload that was withdrawn. No version has taken its place yet.")))
	}
	if facts := facts(v.Summary); len(facts) > 0 {
		out = append(out, h.Table(h.Class("facts"), facts))
	}
	if len(st.Versions) > 1 {
		out = append(out, h.P(g.Text("Earlier: "), g.Map(st.Versions, func(v VersionStatus) g.Node {
			if v.Superseded != nil && v.Superseded.Reason == withdrawn {
				return g.Textf("%d (withdrawn) ", v.Number)
			}
			return g.Group{h.A(h.Href(fmt.Sprintf("%s/classifier.onnx?version=%d",
				round, v.Number)), g.Text(strconv.Itoa(v.Number))), g.Textf(" (%d) ", v.Clients)}
		})))
	}
	return out
}

// facts returns the scalar values of a summary, one per row, sorted by name.
// A value that is neither a number nor text has no row. A summary that is no object has none.
func facts(summary json.RawMessage) g.Group {
	var m map[string]json.RawMessage
	if json.Unmarshal(summary, &m) != nil {
		return nil
	}
	var out g.Group
	for _, k := range slices.Sorted(maps.Keys(m)) {
		var f float64
		var text string
		switch {
		case json.Unmarshal(m[k], &f) == nil:
			text = strconv.FormatFloat(f, 'g', 6, 64)
		case json.Unmarshal(m[k], &text) != nil:
			continue
		}
		out = append(out, h.Tr(h.Th(g.Text(k)), h.Td(g.Text(text))))
	}
	return out
}

// refusedRow tells of a client whose uploads were refused: the reason, how often, and when last.
func refusedRow(r store.Refusal) g.Node {
	return h.Tr(h.Class("refused"), h.Td(g.Text(r.Client)), h.Td(g.Text(r.Reason)),
		number(h.Td, strconv.Itoa(r.Count)), h.Td(h.Class("when"), g.Text(when(r.Time))))
}

// withdrawnRow tells by whom a client's upload was withdrawn, and since when.
func withdrawnRow(w WithdrawnStatus) g.Node {
	return h.Tr(h.Class("gone"), h.Td(g.Text(w.Client)), h.Td(g.Text(w.By)),
		h.Td(h.Class("when"), g.Text(when(w.Time))))
}

// memberRow tells of a client that is in, as the latest version judges it.
// Where that version does not hold it, or the round is private, its numbers are dashes.
// A P(honest) below one half is marked. The upload is told by 12 digits of its digest.
// Counts of images are left out of a private round, which promises to count none.
func (st *Status) memberRow(m MemberStatus) g.Node {
	const none = "–"
	images := none
	if st.Privacy == nil {
		images = strconv.Itoa(m.N)
	}
	counted := none
	if m.Counted != nil && st.Privacy == nil {
		counted = strconv.FormatFloat(*m.Counted, 'f', 0, 64)
	}
	honest := g.Text(none)
	if m.Honest != nil && st.Privacy == nil {
		honest = h.Span(g.If(*m.Honest < 0.5, h.Class("bad")),
			g.Text(strconv.FormatFloat(*m.Honest, 'f', 2, 64)))
	}
	return h.Tr(h.Class("in"), h.Td(g.Text(m.Client)), number(h.Td, images), number(h.Td, counted),
		h.Td(h.Class("n"), honest), h.Td(h.Class("when spare"), g.Text(when(m.Time))),
		h.Td(h.Class("spare"), h.Code(g.Text(m.Upload[:min(len(m.Upload), 12)]))))
}

// section returns a heading followed by body, or by none if there is nothing to show.
func section(title, none string, body g.Group) g.Node {
	if len(body) == 0 {
		body = g.Group{h.P(g.Text(none))}
	}
	return g.Group{g.Text("\n"), h.H2(g.Text(title)), body}
}

// list returns a table with a row per item; nil if there are no items.
// The box around the table scrolls sideways, so that long names do not widen the page.
func list[T any](of []T, head []g.Node, row func(T) g.Node) g.Group {
	if len(of) == 0 {
		return nil
	}
	return g.Group{h.Div(h.Class("wide"), h.Table(h.Tr(head...), g.Map(of, row)))}
}

// names returns a list of names; nil if there are none, so that [section] says so.
func names(of []string) g.Group {
	if len(of) == 0 {
		return nil
	}
	return g.Group{h.Ul(g.Map(of, func(name string) g.Node { return h.Li(g.Text(name)) }))}
}

// number returns a table cell with right-aligned digits.
func number(cell func(...g.Node) g.Node, text string) g.Node {
	return cell(h.Class("n"), g.Text(text))
}

// when writes a time in UTC, to the second.
// A page has readers in several time zones, so that the zone is named.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// whatIsIn describes the uploads of a private round.
func (st *Status) whatIsIn() string {
	if st.Server != "" {
		return "shares of class sums, which say nothing without those of the other server (this " +
			"one is the " + st.Server + ")"
	}
	return "noisy class sums, or sums that get their noise here"
}
