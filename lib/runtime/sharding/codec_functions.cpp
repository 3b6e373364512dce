#include "runtime/sharding/codec_functions.hpp"

#include "comm/modules.hpp"

namespace dslaunch::runtime {

const CodecFunctions& codec_functions() {
  static const CodecFunctions& functions = comm::cuda_module().table<CodecFunctions>(kCodecFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime
