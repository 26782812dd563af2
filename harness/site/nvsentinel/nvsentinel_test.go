package nvsentinel

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// healthEvents describes the message by the numbers, names and types of NVSentinel's protocol.
func healthEvents(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	type kind = descriptorpb.FieldDescriptorProto_Type
	const text, number, flag, message, enum, many = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_UINT32,
		descriptorpb.FieldDescriptorProto_TYPE_BOOL, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_TYPE_ENUM, true
	values := func(name string, all ...any) *descriptorpb.EnumDescriptorProto {
		e := &descriptorpb.EnumDescriptorProto{Name: &name}
		for i := 0; i < len(all); i += 2 {
			e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String(all[i].(string)), Number: proto.Int32(int32(all[i+1].(int)))})
		}
		return e
	}
	field := func(name string, n int32, k kind, of string, many bool) *descriptorpb.FieldDescriptorProto {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if many {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		f := &descriptorpb.FieldDescriptorProto{Name: &name, JsonName: &name, Number: &n, Type: &k, Label: &label}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("x.proto"), Package: proto.String("datamodels"), Syntax: proto.String("proto3"),
		Dependency: []string{timestamppb.File_google_protobuf_timestamp_proto.Path()},
		EnumType: []*descriptorpb.EnumDescriptorProto{
			values("ProcessingStrategy", "UNSPECIFIED", 0, "EXECUTE_REMEDIATION", 1, "STORE_ONLY", 2),
			values("RecommendedAction", "NONE", 0, "COMPONENT_RESET", 2, "CONTACT_SUPPORT", 5, "RUN_FIELDDIAG", 6, "RESTART_VM", 15, "RESTART_BM", 24, "REPLACE_VM", 25, "RUN_DCGMEUD", 26, "RESTART_APP", 39, "UNKNOWN", 99),
		},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("HealthEvents"), Field: []*descriptorpb.FieldDescriptorProto{
				field("version", 1, number, "", false), field("events", 2, message, ".datamodels.HealthEvent", many),
			}},
			{Name: proto.String("HealthEvent"), Field: []*descriptorpb.FieldDescriptorProto{
				field("version", 1, number, "", false), field("agent", 2, text, "", false), field("componentClass", 3, text, "", false), field("checkName", 4, text, "", false),
				field("isFatal", 5, flag, "", false), field("isHealthy", 6, flag, "", false), field("message", 7, text, "", false), field("recommendedAction", 8, enum, ".datamodels.RecommendedAction", false),
				field("errorCode", 9, text, "", many), field("generatedTimestamp", 12, message, ".google.protobuf.Timestamp", false), field("nodeName", 13, text, "", false),
				field("processingStrategy", 16, enum, ".datamodels.ProcessingStrategy", false),
			}},
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("HealthEvents")
}

// connector starts a real gRPC server with the connector's method. It passes on what it gets, as
// JSON, and answers with the errors of a list, then with success.
func connector(t *testing.T, errs ...error) (socket string, got func() []string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nvsentinel.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	what := healthEvents(t)
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "datamodels.PlatformConnector", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "HealthEventOccurredV1",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := dynamicpb.NewMessage(what)
			if err := decode(m); err != nil {
				return nil, err
			}
			if len(m.GetUnknown()) > 0 {
				t.Errorf("unknown fields: %x", m.GetUnknown())
			}
			if len(errs) > 0 {
				err := errs[0]
				errs = errs[1:]
				return nil, err
			}
			all = append(all, strings.ReplaceAll(protojson.MarshalOptions{}.Format(m), " ", ""))
			return &emptypb.Empty{}, nil
		},
	}}}, new(any))
	go server.Serve(listener)
	return socket, func() []string { server.GracefulStop(); return all }
}

// TestSend: a gRPC server gets from a certificate what the protocol wants.
func TestSend(t *testing.T) {
	pause = time.Millisecond
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
	for _, tt := range []struct {
		verdict  result.Verdict
		strategy Strategy
		want     string
	}{
		{result.Pass, Execute, `"isHealthy":true,"message":"assay:suitequick,1checkspassed","generatedTimestamp":"2026-03-01T12:00:00.005Z","nodeName":"gpu-1","processingStrategy":"EXECUTE_REMEDIATION"}]}`},
		{result.Fail, Store, `"isFatal":true,"message":"assay:gpu/ecc:2errors","recommendedAction":"CONTACT_SUPPORT","errorCode":["gpu/ecc"],"generatedTimestamp":"2026-03-01T12:00:00.005Z","nodeName":"gpu-1","processingStrategy":"STORE_ONLY"}]}`},
		{result.Error, Execute, `"message":"assay:notrun:gpu/ecc:2errors","errorCode":["gpu/ecc"],"generatedTimestamp":"2026-03-01T12:00:00.005Z","nodeName":"gpu-1","processingStrategy":"EXECUTE_REMEDIATION"}]}`},
	} {
		socket, got := connector(t)
		st := certificate.New(certificate.Predicate{Suite: "quick", Finished: at, Results: []result.Result{{ID: "gpu/ecc", Verdict: tt.verdict, Reason: "2 errors"}}})
		if err := Send(t.Context(), "unix://"+socket, Of(st, "gpu-1", tt.strategy)); err != nil {
			t.Fatalf("%s: %v", tt.verdict, err)
		}
		const head = `{"version":1,"events":[{"version":1,"agent":"assay","componentClass":"Node","checkName":"Assay",`
		if all := got(); len(all) != 1 || all[0] != head+tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.verdict, all, head+tt.want)
		}
	}
}

// TestJSON: protobuf reads from the JSON what it reads from the message.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.FixedZone("", 3600))
	for _, e := range []Event{
		{Time: time.Unix(0, 0)},
		{Agent: "assay", Component: "Node", Check: "Assay", Healthy: true, Message: "assay: <all> \"well\"", Time: at, Node: "gpu-1", Strategy: Execute},
		{Agent: "assay", Component: "Node", Check: "Assay", Fatal: true, Message: "Å: 2 errors", Action: actionContactSupport, Codes: []string{"gpu/ecc", "gpu/xid"}, Time: at, Node: "gpu-1", Strategy: Store},
	} {
		what := healthEvents(t)
		sent, read := dynamicpb.NewMessage(what), dynamicpb.NewMessage(what)
		doc, err := json.Marshal(e.JSON())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(proto.Unmarshal(e.marshal(), sent), protojson.Unmarshal(doc, read)); err != nil || !proto.Equal(sent, read) {
			t.Errorf("%s: %v\n got %v\nwant %v", doc, err, read, sent)
		}
	}
}

// TestSendAgain: what fails is tried again, and what goes on to fail is an error with its reason.
func TestSendAgain(t *testing.T) {
	pause = time.Millisecond
	busy := status.Error(codes.Unavailable, "busy now")
	socket, got := connector(t, busy, busy)
	if err := Send(t.Context(), socket, Event{}); err != nil || len(got()) != 1 {
		t.Errorf("after two failures: %v", err)
	}
	socket, _ = connector(t, busy, busy, busy, busy, busy)
	if err := Send(t.Context(), socket, Event{}); err == nil || !strings.Contains(err.Error(), `gRPC status "14": busy now`) {
		t.Errorf("after five failures: %v", err)
	}
	if err := Send(t.Context(), filepath.Join(t.TempDir(), "none"), Event{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no socket: %v", err)
	}
}

func TestParseStrategy(t *testing.T) {
	for s, want := range map[string]Strategy{"": Execute, "EXECUTE_REMEDIATION": Execute, "STORE_ONLY": Store, "store": 0} {
		if got, err := ParseStrategy(s); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
}
