// Package javascript has the tests of the JavaScript engine, which run handlers through the real runtime. The engine's sources
// are in the folder engine, the types of @quern/sdk beside this file.
package javascript
