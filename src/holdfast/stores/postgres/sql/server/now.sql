SELECT now FROM holdfast.clock
