// The boundary between ATen's exceptions and statuses: exceptions do not cross modules.
#pragma once

#include <ATen/ATen.h>

#include <new>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "common/base/strings.h"

namespace manta::model {

// Runs `body`, which returns a Status or StatusOr, and turns what it throws into an error that begins with `what`.
template <typename Body>
auto CatchAten(std::string_view what, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(StrCat(what, ": out of memory: ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat(what, ": out of memory"));
  } catch (const std::exception& error) {
    return absl::InternalError(StrCat(what, ": ", error.what()));
  }
}

}  // namespace manta::model
