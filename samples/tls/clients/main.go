// Clients of franz-go, sarama and segmentio/kafka-go over TLS:
//
//	clients LIBRARY MODE BOOTSTRAP AUTHORITY CLIENT_ID KEYS
//
// MODE: one (a record at a time, each after the response to the one before), many (records that do not wait for each
// other), or read (a consumer). KEYS gets the secrets of the connections.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	single = 30
	many   = 150
	pause  = 5 * time.Millisecond
	length = 3 * time.Second
)

var value = []byte(strings.Repeat("order 4711: two of article 99-1001, paid, shipped; ", 4))

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	library, mode, at, authority, id, keys := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	pem, err := os.ReadFile(authority)
	check(err)
	log, err := os.OpenFile(keys, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	over := &tls.Config{RootCAs: trusted, KeyLogWriter: log}
	topic := map[bool]string{true: "quiet", false: "orders"}[mode == "read"]
	play := map[string]func(string, string, string, string, *tls.Config){"franz-go": franz, "sarama": sar, "segmentio": segment}
	play[library](topic, mode, at, id, over)
}

func franz(topic, mode, at, id string, over *tls.Config) {
	options := []kgo.Opt{kgo.SeedBrokers(at), kgo.ClientID(id), kgo.DialTLSConfig(over), kgo.DefaultProduceTopic(topic)}
	options = append(options, kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(1024), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
	if mode == "read" {
		options = append(options, kgo.ConsumeTopics(topic))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch mode {
	case "one":
		for range single {
			check(client.ProduceSync(within, &kgo.Record{Value: value}).FirstErr())
			time.Sleep(pause)
		}
	case "many":
		for range many {
			client.Produce(within, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) { check(err) })
		}
		check(client.Flush(within))
	case "read":
		until, stop := context.WithTimeout(within, length)
		defer stop()
		for until.Err() == nil {
			client.PollFetches(until)
		}
	}
}

func sar(topic, mode, at, id string, over *tls.Config) {
	config := sarama.NewConfig()
	config.ClientID, config.Version = id, sarama.V3_6_0_0
	config.Net.TLS.Enable, config.Net.TLS.Config = true, over
	config.Producer.Return.Successes = true
	config.Producer.Flush.MaxMessages = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	switch mode {
	case "one":
		producer, err := sarama.NewSyncProducer([]string{at}, config)
		check(err)
		for range single {
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)})
			check(err)
			time.Sleep(pause)
		}
		check(producer.Close())
	case "many":
		producer, err := sarama.NewAsyncProducer([]string{at}, config)
		check(err)
		go func() {
			for range many {
				producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)}
			}
		}()
		for range many {
			select {
			case <-producer.Successes():
			case failed := <-producer.Errors():
				check(failed)
			}
		}
		check(producer.Close())
	case "read":
		consumer, err := sarama.NewConsumer([]string{at}, config)
		check(err)
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		check(err)
		end := time.After(length)
		for {
			select {
			case <-partition.Messages():
				continue
			case <-end:
			}
			break
		}
		check(consumer.Close())
	}
}

func segment(topic, mode, at, id string, over *tls.Config) {
	within, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if mode == "read" {
		dialer := &kafka.Dialer{ClientID: id, TLS: over, Timeout: 5 * time.Second}
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{at}, Topic: topic, Partition: 0, Dialer: dialer, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond})
		until, stop := context.WithTimeout(within, length)
		defer stop()
		for until.Err() == nil {
			reader.ReadMessage(until)
		}
		check(reader.Close())
		return
	}
	writer := &kafka.Writer{Addr: kafka.TCP(at), Topic: topic, BatchSize: 1, BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll, Transport: &kafka.Transport{ClientID: id, TLS: over}}
	if mode == "one" {
		for range single {
			check(writer.WriteMessages(within, kafka.Message{Value: value}))
			time.Sleep(pause)
		}
	} else {
		var messages []kafka.Message
		for range many {
			messages = append(messages, kafka.Message{Value: value})
		}
		check(writer.WriteMessages(within, messages...))
	}
	check(writer.Close())
}
