// A product of oneDNN 2 or 3, whose interfaces describe it differently.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace sluice::tools {

inline dnnl::matmul::primitive_desc matmulDesc(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                               const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace sluice::tools
