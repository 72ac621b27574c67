// Request messages that do not parse (broken protobuf, text that is not UTF-8) end with INVALID_ARGUMENT saying so.
// By itself gRPC's callback API ends such calls with a bare UNIMPLEMENTED, which reads as if the method did not exist.
#ifndef MOE_SERVER_PARSE_FAILURES_H_
#define MOE_SERVER_PARSE_FAILURES_H_

namespace grpc {
class ServerBuilder;
}

namespace moe {

// Call before BuildAndStart.
void ReportParseFailures(grpc::ServerBuilder* builder);

}  // namespace moe

#endif  // MOE_SERVER_PARSE_FAILURES_H_
