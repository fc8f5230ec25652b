#include "textflag.h"

// func keepStack()
//
// It sets g.stackguard0, which follows the two words of g.stack.
TEXT ·keepStack(SB), NOSPLIT, $0-0
	MOVD $0, 16(g)
	RET

// func callFrom(sp, pc uintptr)
//
// It calls collectFrames as if the code at pc had called it, whose stack pointer is sp. The frames of the callers of
// callFrom may be below sp, so collectFrames overwrites them: until their return they must use nothing in their frames.
TEXT ·callFrom(SB), NOSPLIT, $0-16
	MOVD sp+0(FP), R0
	MOVD pc+8(FP), R1
	Get SP
	I64ExtendI32U
	Set R2

	Get R0
	I64Const $8
	I64Sub
	I32WrapI64
	Set SP
	Get SP
	Get R1
	I64Store $0

	I32Const $0
	Call ·collectFrames(SB)
	Drop

	Get R2
	I32WrapI64
	Set SP
	RET
