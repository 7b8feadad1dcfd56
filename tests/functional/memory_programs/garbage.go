// A server whose heap is collected and grows: maps, slices and many goroutines, each answer computed from all of it.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
)

type node struct {
	next  *node
	value int
	pad   [100]byte
}

var kept = map[int]*node{}

func churn(seed int) int {
	var head *node
	for i := 0; i < 20000; i++ {
		head = &node{next: head, value: seed + i}
		if head.pad != [100]byte{} {
			panic("fresh memory is not zero")
		}
		head.pad[i%100] = byte(i)
	}
	sum := 0
	for ; head != nil; head = head.next {
		sum += head.value - seed
	}
	return sum
}

func step(n int) string {
	var group sync.WaitGroup
	sums := make([]int, 16)
	for i := range sums {
		group.Add(1)
		go func(i int) { defer group.Done(); sums[i] = churn(i * n) }(i)
	}
	group.Wait()
	for i := 0; i < 1000; i++ {
		kept[n*1000+i] = &node{value: n*1000 + i}
	}
	runtime.GC()
	for k, v := range kept {
		if v.value != k {
			return fmt.Sprintf("failed: %d is %d", k, v.value)
		}
	}
	for _, s := range sums {
		if s != sums[0] {
			return fmt.Sprint("failed: ", sums)
		}
	}
	return fmt.Sprint(n, " ", sums[0], " ", len(kept))
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:7000")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for n := 1; ; n++ {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = bufio.NewReader(c).ReadString('\n')
		fmt.Fprintln(c, step(n))
		c.Close()
	}
}
