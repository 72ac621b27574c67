// The gRPC side of a generation: a reactor per call that lends itself to a GenerateCall as its outlet.
#ifndef MOE_SERVER_GENERATE_REACTORS_H_
#define MOE_SERVER_GENERATE_REACTORS_H_

#include <grpcpp/support/server_callback.h>

namespace moe::v1 {
class GenerateChunk;
class GenerateRequest;
class GenerateResponse;
}  // namespace moe::v1

namespace moe {

class ServerCore;

// Maps the request and starts the call. A refused request's reactor is finished already. The reactor deletes itself.
grpc::ServerUnaryReactor* StartGenerate(ServerCore* core, grpc::CallbackServerContext* context,
                                        const v1::GenerateRequest* request, v1::GenerateResponse* response);
grpc::ServerWriteReactor<v1::GenerateChunk>* StartGenerateStream(ServerCore* core, grpc::CallbackServerContext* context,
                                                                 const v1::GenerateRequest* request);

}  // namespace moe

#endif  // MOE_SERVER_GENERATE_REACTORS_H_
