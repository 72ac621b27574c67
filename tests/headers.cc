// A target of its own for the headers that every test reads (CMakeLists.txt).
int main() {
  return 0;
}
