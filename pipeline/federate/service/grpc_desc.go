package service

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "fmp/pipeline/federate/inferpb"
)

// inferenceService is the service of the Open Inference Protocol (inferpb/open_inference.proto).
// Empty and BoolValue have the bytes of the protocol's own messages, so that these need not be
// generated. Calls come at once, each in a goroutine of its own.
type inferenceService interface {
	ServerLive(context.Context, *emptypb.Empty) (*wrapperspb.BoolValue, error)
	ServerReady(context.Context, *emptypb.Empty) (*wrapperspb.BoolValue, error)
	ModelReady(context.Context, *pb.Named) (*wrapperspb.BoolValue, error)
	ServerMetadata(context.Context, *emptypb.Empty) (*pb.Named, error)
	ModelMetadata(context.Context, *pb.Named) (*pb.Model, error)
	ModelInfer(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error)
}

// inferenceMethods are the service's methods by name, without a method that falls back on another.
// The table stands in place of the code that protoc-gen-go-grpc would make. grpc-go answers a
// method that is not in it with UNIMPLEMENTED.
var inferenceMethods = grpc.ServiceDesc{
	ServiceName: strings.Trim(grpcPath, "/"),
	HandlerType: (*inferenceService)(nil),
	Methods: []grpc.MethodDesc{
		unaryMethod("ServerLive", inferenceService.ServerLive),
		unaryMethod("ServerReady", inferenceService.ServerReady),
		unaryMethod("ModelReady", inferenceService.ModelReady),
		unaryMethod("ServerMetadata", inferenceService.ServerMetadata),
		unaryMethod("ModelMetadata", inferenceService.ModelMetadata),
		unaryMethod("ModelInfer", inferenceService.ModelInfer),
	},
}

// unaryMethod describes a method of one request and one response.
// The handler has the form that grpc-go calls: decode fills the request, and the interceptor, if
// there is one, calls the method. An error of decode comes back before the interceptor has seen
// the call.
func unaryMethod[In, Out any](name string,
	call func(inferenceService, context.Context, *In) (*Out, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(server any, ctx context.Context,
		decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		do := func(ctx context.Context, in any) (any, error) {
			return call(server.(inferenceService), ctx, in.(*In))
		}
		if intercept == nil {
			return do(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: server,
			FullMethod: grpcPath + name}, do)
	}}
}
