/*
 * linearizability -dir DIR -port FILE -seed N -history FILE
 * linearizability -check FILE [-stale KIND]
 *
 * The first form has sessions that read and change registers and lists, until a
 * SIGTERM.  The file with the port of the primary is read before each connection.
 * Then all cells are read once more, and the history is written.
 *
 * The second form lets the checker porcupine check a history.  Exit status 3 means
 * that no order of the operations explains all answers.  With -stale, it first
 * replaces the last answer about one "register" or "list" by an older one, so that
 * the status must be 3.
 *
 * An operation whose connection was lost, in COMMIT or before, may take effect at
 * any later time, or never: it ends after all others, and its answer is unknown.
 * It is never tried again.
 */
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lib/pq"
)

const (
	sessions = 6
	cells    = 4   // registers, and as many lists, that are changed at a time
	moves    = 400 // operations until others take their place
)

// Op is one operation on a cell.
type Op struct {
	Session      int
	Cell         string // r1, r2, ... are registers, l1, l2, ... are lists
	Kind         string // read, write, swap, append
	Old, Arg     string
	Answer       string
	Unknown      bool // no answer came
	Call, Return int64
}

var statements = map[string]string{
	"read":   `SELECT coalesce((SELECT v FROM cell WHERE k = $1), '')`,
	"write":  `INSERT INTO cell VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v`,
	"append": `INSERT INTO cell VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = cell.v || ',' || excluded.v`,
	"swap":   `UPDATE cell SET v = $2 WHERE k = $1 AND v = $3`,
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string][]porcupine.Operation{}
		for _, o := range history {
			cell := o.Input.(Op).Cell
			of[cell] = append(of[cell], o)
		}
		for _, part := range of {
			parts = append(parts, part)
		}
		return
	},
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		is, op := state.(string), input.(Op)
		switch op.Kind {
		case "read":
			return op.Answer == is, is
		case "write":
			return true, op.Arg
		case "append":
			return true, strings.TrimPrefix(is+","+op.Arg, ",")
		}
		if is == op.Old {
			return op.Unknown || op.Answer == "1", op.Arg
		}
		return op.Unknown || op.Answer == "0", is
	},
}

var (
	dir      = flag.String("dir", "", "directory of the servers' sockets")
	port     = flag.String("port", "", "file with the port of the primary")
	seed     = flag.Int64("seed", 0, "seed of the sessions' random choices")
	file     = flag.String("history", "", "file to write the history to")
	check    = flag.String("check", "", "history to check")
	stale    = flag.String("stale", "", "falsify an answer about a register or a list")
	began    = time.Now()
	mutex    sync.Mutex
	history  []Op
	refused  int // operations that the server answered with an error: not done
	finished atomic.Bool
)

// connect tries until the primary accepts a connection.  database/sql repeats a
// statement without being told to, but not on an sql.Conn.
func connect() (*sql.DB, *sql.Conn) {
	for ; ; time.Sleep(20 * time.Millisecond) {
		p, err := os.ReadFile(*port)
		if err != nil {
			log.Fatal(err)
		}
		db, err := sql.Open("postgres", fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable", *dir, strings.TrimSpace(string(p))))
		if err != nil {
			log.Fatal(err)
		}
		if conn, err := db.Conn(context.Background()); err == nil {
			return db, conn
		}
		db.Close()
	}
}

// perform sends an operation.  Half of the changes have a COMMIT of their own.
func perform(conn *sql.Conn, op *Op, block bool) error {
	ctx := context.Background()
	args := []interface{}{op.Cell, op.Arg, op.Old}
	switch op.Kind {
	case "read":
		return conn.QueryRowContext(ctx, statements["read"], op.Cell).Scan(&op.Answer)
	case "write", "append":
		args = args[:2]
	}
	if block {
		if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
	}
	result, err := conn.ExecContext(ctx, statements[op.Kind], args...)
	if err != nil {
		if block {
			conn.ExecContext(ctx, "ROLLBACK")
		}
		return err
	}
	if block {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	n, _ := result.RowsAffected()
	op.Answer = fmt.Sprint(n)
	return err
}

// choose makes up an operation; seen is what the session has read of a cell.
func choose(r *rand.Rand, op *Op, seen map[string]string) {
	mutex.Lock()
	n := len(history)/moves*cells + r.Intn(cells)
	mutex.Unlock()
	kind := r.Intn(10)
	if kind == 0 { // also cells that are not changed any more
		n = r.Intn(n + 1)
	}
	op.Cell, op.Kind = fmt.Sprintf("r%d", n), "read"
	if r.Intn(2) == 0 {
		op.Cell = fmt.Sprintf("l%d", n)
	}
	switch {
	case kind < 5:
	case op.Cell[0] == 'l':
		op.Kind = "append"
	case kind < 8 || seen[op.Cell] == "":
		op.Kind = "write"
	default:
		op.Kind, op.Old = "swap", seen[op.Cell]
	}
}

// session works until finished; unique values come from its number and a count.
func session(number int) {
	r := rand.New(rand.NewSource(*seed + int64(number)))
	seen := map[string]string{}
	db, conn := connect()
	for count := 0; !finished.Load(); count++ {
		op := Op{Session: number}
		choose(r, &op, seen)
		op.Arg = fmt.Sprintf("%d.%d", number, count)
		block := r.Intn(2) == 0
		op.Call = int64(time.Since(began))
		err := perform(conn, &op, block)
		op.Return = int64(time.Since(began))
		var answer *pq.Error
		if errors.As(err, &answer) && answer.Severity == "ERROR" {
			mutex.Lock()
			refused++
			mutex.Unlock()
			continue
		}
		if err != nil {
			op.Unknown, op.Return = true, math.MaxInt64
			conn.Close()
			db.Close()
			db, conn = connect()
		} else if op.Kind == "read" {
			seen[op.Cell] = op.Answer
		}
		if err == nil || op.Kind != "read" {
			mutex.Lock()
			history = append(history, op)
			mutex.Unlock()
		}
	}
}

func record() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	var all sync.WaitGroup
	for i := 0; i < sessions; i++ {
		all.Add(1)
		go func(number int) { defer all.Done(); session(number) }(i)
	}
	<-term
	finished.Store(true)
	all.Wait()

	_, conn := connect()
	for n := 0; n < (len(history)/moves+1)*cells; n++ {
		for _, kind := range []string{"r", "l"} {
			op := Op{Session: sessions, Cell: fmt.Sprintf("%s%d", kind, n), Kind: "read", Call: int64(time.Since(began))}
			if err := perform(conn, &op, false); err != nil {
				log.Fatal(err)
			}
			op.Return = int64(time.Since(began))
			history = append(history, op)
		}
	}
	text, err := json.Marshal(history)
	if err == nil {
		err = os.WriteFile(*file, text, 0600)
	}
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%d operations were refused", refused)
}

// falsify replaces the last answer about one cell by the one that was right after
// the first acknowledged change of it, although others were acknowledged since.
func falsify() {
	first := map[string]Op{}
	since := map[string]bool{}
	for i := range history {
		op := &history[i]
		switch f, ok := first[op.Cell]; {
		case op.Unknown || op.Cell[0] != (*stale)[0]:
		case op.Kind == "write" || op.Kind == "append":
			if !ok {
				first[op.Cell] = *op
			} else if op.Call > f.Return {
				since[op.Cell] = true
			}
		case op.Session == sessions && since[op.Cell]:
			log.Printf("the last answer about %s was %.40s, and becomes %s", op.Cell, op.Answer, f.Arg)
			op.Answer = f.Arg
			return
		}
	}
	log.Fatal("there is no answer to falsify")
}

func main() {
	flag.Parse()
	log.SetFlags(0)
	if *check == "" {
		record()
		return
	}
	text, err := os.ReadFile(*check)
	if err == nil {
		err = json.Unmarshal(text, &history)
	}
	if err != nil {
		log.Fatal(err)
	}
	if *stale != "" {
		falsify()
	}
	var operations []porcupine.Operation
	unknown := 0
	for _, op := range history {
		operations = append(operations, porcupine.Operation{ClientId: op.Session, Input: op, Call: op.Call, Return: op.Return})
		if op.Unknown {
			unknown++
		}
	}
	result := porcupine.CheckOperationsTimeout(model, operations, 5*time.Minute)
	fmt.Printf("%d operations, %d of them without an answer: %s\n", len(history), unknown, result)
	for _, part := range model.Partition(operations) {
		if result == porcupine.Illegal && !porcupine.CheckOperations(model, part) {
			fmt.Printf("for example, without an order: %+v\n", part)
			break
		}
	}
	if result != porcupine.Ok {
		os.Exit(3)
	}
}
