package schedule_test

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

func Example() {
	s, err := schedule.New(op.Broadcast, schedule.TwoShot, schedule.Options{Ranks: 3, Root: 0})
	if err != nil {
		panic(err)
	}
	fmt.Print(s)
	fmt.Println("error:", schedule.Check(s, schedule.CheckOptions{ZeroCopy: true}))
	st, err := s.Stats()
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d messages in %d rounds; each rank sends %v blocks of %d\n", st.Messages, st.Rounds, st.Sent, s.Blocks)
	// Output:
	// Broadcast two-shot: ranks 3, root 0, blocks 3, channels 1
	// rank 0
	//   lane 0, channel 0
	//     1       in[1] -> send(1)
	//     2       in[2] -> send(2)
	//     0       in[0] -> out[0], send(everyone)
	//   lane 1, channel 0
	//     2       multi(2) -> out[2]
	//     1       multi(1) -> out[1]
	// rank 1
	//   lane 0, channel 0
	//     1       recv(0) -> out[1], send(everyone)
	//   lane 1, channel 0
	//     0       multi(0) -> out[0]
	//     2       multi(2) -> out[2]
	// rank 2
	//   lane 0, channel 0
	//     2       recv(0) -> out[2], send(everyone)
	//   lane 1, channel 0
	//     1       multi(1) -> out[1]
	//     0       multi(0) -> out[0]
	// error: <nil>
	// 5 messages in 2 rounds; each rank sends [3 1 1] blocks of 3
}
