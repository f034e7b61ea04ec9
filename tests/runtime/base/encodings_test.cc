// Texts of encodings: what they stand for, their shortest form, and which of them go together.
#include "runtime/base/encodings.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

std::string shortestOf(std::string_view text) {
  const Expected<Encodings> read = parseEncodings(text);
  return read ? printEncodings(*read) : "error: " + read.error().message;
}

TEST_CASE("an encoding without a place is that of weights, or of all that products round") {
  const Encodings codes = *parseEncodings("int4:g64z");
  CHECK(codes.weights == findEncoding("int4:g64z"));
  CHECK(codes.weights->element == DType::kU8);
  CHECK((codes.weights->along == 64 && codes.weights->across == 1 && codes.weights->zeros));
  CHECK((codes.trained == &kBf16 && codes.rows == &kBf16 && codes.grads == &kBf16));
  const Encodings squares =
      *parseEncodings("mxfp8:32x32:floor,grads=mxfp8e5m2:floor,sent=mxfp8:floor,kept=mxfp8:floor");
  CHECK(squares.trained->rounding == Rounding::kMxE4m3SquareFloor);
  CHECK(squares.rows->rounding == Rounding::kMxE4m3Floor);  // squares are only those of a weight
  CHECK(squares.grads->rounding == Rounding::kMxE5m2Floor);
  CHECK((squares.sent == squares.rows && !squares.keepsBf16));
  const Encodings delayed = *parseEncodings("fp8e4m3:delayed");
  CHECK((delayed.rows->amax == AmaxSource::kGiven && delayed.trained->amax == AmaxSource::kStep));
  CHECK(*parseEncodings("") == Encodings{});
}

TEST_CASE("a single weight has an encoding of its own, whatever is said of all, before it or after") {
  for (const char* const text : {"weights.w=int8,int4:g32", "int4:g32,weights.w=mxfp4,weights.w=int8"}) {
    const Encodings read = *parseEncodings(text);
    CHECK((read.ofWeight("w").name == "int8" && read.ofWeight("v").name == "int4:g32"));
    CHECK(printEncodings(read) == "int4:g32,weights.w=int8");
  }
  CHECK(shortestOf("weights.w=bf16,int8,rows=int8") == "int8,weights.w=bf16,rows=int8");
  CHECK(shortestOf("weights.w=int8") == "weights.w=int8");
  CHECK((parseEncodings("weights.w=int8")->hasCodes() && !parseEncodings("weights.w=bf16")->hasCodes()));
}

TEST_CASE("the shortest text of encodings is one for all ways to say them") {
  for (const Encoding& each : kEncodings)
    if (const Expected<Encodings> read = parseEncodings(each.name); read && each.name != "bf16")
      CHECK(printEncodings(*read) == each.name);
  CHECK(shortestOf("bf16") == "");
  CHECK(shortestOf("rows=int8,weights=int8") == "int8,rows=int8");
  CHECK(shortestOf("trained=mxfp8,rows=mxfp8,grads=mxfp8,kept=mxfp8") == "mxfp8");
  CHECK(shortestOf("trained=mxfp8:32x32,rows=mxfp8,grads=mxfp8e5m2") == "mxfp8:32x32,grads=mxfp8e5m2");
  CHECK(shortestOf("fp8e4m3,rows=fp8e4m3:delayed,grads=fp8e5m2") == "fp8e4m3:delayed,grads=fp8e5m2");
  CHECK(shortestOf("mxfp8,kept=bf16") == "mxfp8,kept=bf16");
  CHECK(shortestOf("int8,grads=int8,rows=int8,grads=bf16") == "int8,rows=int8");  // later ones count
  for (const Encoding& weights : kEncodings)
    for (const Encoding& rows : kEncodings)
      for (const Encoding& grads : kEncodings) {
        std::string text(weights.name);
        text += ",rows=" + std::string(rows.name) + ",grads=" + std::string(grads.name);
        if (const Expected<Encodings> read = parseEncodings(text))
          CHECK(*parseEncodings(printEncodings(*read)) == *read);
      }
}

TEST_CASE("encodings that do not go together are refused with what was found and expected") {
  for (const auto& [text, said] : {
           std::pair("int8,mxfp8",
                     "weights=int8 are codes, which products do not round: expected trained, rows and "
                     "grads of bf16, or weights=bf16"),
           {"rows=int8", "rows=int8, expected weights of int8 or int4"},
           {"grads=int8", "grads=int8, expected weights of int8 or int4"},
           {"fp8e4m3:128x128,rows=int8", "rows=int8, expected bf16 with weights=fp8e4m3:128x128"},
           {"mxfp4,rows=int8", "rows=int8, expected bf16 with weights=mxfp4"},
           {"nvfp4,rows=int8", "rows=int8, expected bf16 with weights=nvfp4"},
           {"mxfp4,grads=int8",
            "grads=int8, expected bf16 with weights=mxfp4: gradients are multiplied by one scale "
            "per column of a weight, without groups, squares or zeros"},
           {"int4:z,grads=int8",
            "grads=int8, expected bf16 with weights=int4:z: gradients are multiplied by one scale "
            "per column of a weight, without groups, squares or zeros"},
           {"rows=mxfp8", "rows=mxfp8, expected one like trained=bf16"},
           {"mxfp8,grads=bf16", "grads=bf16, expected one like trained=mxfp8"},
           {"mxfp8,grads=mxfp8:floor", "grads=mxfp8:floor, expected one like trained=mxfp8"},
           {"fp8e4m3,grads=mxfp8e5m2", "grads=mxfp8e5m2, expected one like trained=fp8e4m3"},
           {"sent=mxfp8", "sent=mxfp8, expected rows that products round in the same way"},
           {"mxfp8,sent=mxfp8:floor", "sent=mxfp8:floor, expected mxfp8, as rows have it"},
           {"int8,rows=int8,sent=mxfp8",
            "sent=mxfp8, expected none with weights=int8: tokens are sent as products read them, rows=int8"},
           {"fp8e4m3:delayed,sent=mxfp8",
            "sent=mxfp8, expected bf16 with rows=fp8e4m3:delayed: tokens would be sent "
            "only after all of them were measured, at all ranks"},
           {"mxfp8,kept=fp8e4m3", "kept=fp8e4m3, expected bf16, or mxfp8, as rows have it"},
           {"mxfp8,sent=mxfp8,kept=bf16", "kept=bf16, expected mxfp8, since only codes arrive"},
           {"weight=int8",
            "found no place 'weight', expected one of weights, trained, rows, grads, kept, sent, "
            "weights.NAME"},
           {"int8,weights.w=mxfp8",
            "weights.w=mxfp8, expected one of bf16, int8, int4, int4:z, int4:g32, int4:g32z, int4:g64, "
            "int4:g64z, int4:g128, int4:g128z, int4:g32:f16, int4:g32z:f16, int4:g64:f16, int4:g64z:f16, "
            "int4:g128:f16, int4:g128z:f16, int4:g32:bf16, int4:g32z:bf16, int4:g64:bf16, int4:g64z:bf16, "
            "int4:g128:bf16, int4:g128z:bf16, fp8e4m3:128x128, mxfp4, nvfp4"},
           {"int8,rows=int8,weights.w=mxfp4", "rows=int8, expected bf16 with weights.w=mxfp4"},
           {"int8,grads=int8,weights.w=int4:g32",
            "grads=int8, expected bf16 with weights.w=int4:g32: gradients are multiplied by one scale "
            "per column of a weight, without groups, squares or zeros"},
           {"mxfp8,weights.w=int8",
            "weights.w=int8 are codes, which products do not round: expected trained, rows and grads of "
            "bf16, "
            "or weights.w=bf16"},
       }) {
    INFO(text);
    CHECK(shortestOf(text) == std::string("error: encode: ") + said);
  }
  for (const char* const text :
       {",", "mxfp8,", "int4,,rows=int8", "=", "rows=", "=int8", "trained=int8", "trained=mxfp8e5m2",
        "rows=int4", "weights=mxfp8", "sent=int8", "kept=int8", "rows=mxfp8:32x32", "grads=fp8e5m2:delayed",
        "fp8e5m2", "INT8", "weights.w", "weights.w="}) {
    INFO(text);
    CHECK(shortestOf(text).find(", expected ") != std::string::npos);
  }
}

TEST_CASE("each option of earlier versions has a spelling that is read") {
  CHECK(spelledNow("precision", "int4") == "int4,rows=int8");
  CHECK(spelledNow("fp8-dispatch", "anything") == "mxfp8,sent=mxfp8");
  CHECK(spelledNow("precision", "int5").empty());
  CHECK(spelledNow("target", "cpu").empty());
  for (const char* const precision :
       {"bf16", "int8", "int8-weights", "int4", "int4-weights", "fp8-weights", "fp8", "mxfp8", "mxfp8-32x32"})
    CHECK(parseEncodings(spelledNow("precision", precision)).ok());
}

}  // namespace
}  // namespace sluice
