#include "tools/report/page/template.h"

namespace sluice::tools {

std::string_view pageTemplate() { return {}; }

}  // namespace sluice::tools
